"""The process that speaks to Ray for the service.

    python -m weft.engines.ray.bridge

A line of JSON in is a question, `[call, arguments]`; a line out its answer, `{"ok": ...}` or
`{"error": text, "kind": name}`. It ends with its input. Ray is kept out of the service this way:
Ray ends the process of a driver that has lost its cluster, and prints to its output.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from weft.engines.ray.cluster import RayCluster
from weft.engines.ray.runner import GROWING, MOST, ServicePaths
from weft.wire.attempt import CURRENT, EVENTS, SPEC, AttemptSpec


class Bridge:
    """Questions to a cluster, by name."""

    def __init__(self) -> None:
        self._cluster: RayCluster | None = None
        self._calls: Mapping[str, Callable[..., Any]] = {"connect": self._connect}

    def answer(self, line: str) -> dict[str, Any]:
        """The answer to one line."""
        name, given = json.loads(line)
        try:
            return {"ok": self._calls[name](**given)}
        except Exception as error:  # the caller decides what it means
            return {"error": str(error).strip()[:4000], "kind": type(error).__name__}

    def _connect(
        self, address: str, owner: str, root: str, mark: str, files: str, nodes: str
    ) -> str:
        import ray

        cluster = RayCluster(address, owner, Path(root), mark, files, nodes)
        cluster.connect()
        carrier = Carrier(cluster)
        self._calls = {
            "poll": cluster.poll,
            "start": cluster.start,
            "end": cluster.end,
            "release": cluster.release,
            "send": carrier.send,
            "fetch": carrier.fetch,
            "push": carrier.push,
            "pull": carrier.pull,
            "artifacts": carrier.artifacts,
            "artifact": carrier.artifact,
        }
        return str(ray.__version__)


def main(questions: TextIO, answers: TextIO) -> None:
    """Answer until there are no more questions."""
    bridge = Bridge()
    for line in questions:
        answers.write(json.dumps(bridge.answer(line)) + "\n")
        answers.flush()


# ---- Files between the service and nodes that do not share its folder, through their runners


SMALL = 1 << 16
TELL_OF_FILES = (b'"event":"saved"', b'"event":"ended"')  # then checkpoints are brought first
Known = dict[str, tuple[int, int, int]]  # name to inode, bytes and time of change over there


@dataclass
class Carrier:
    """The part of each folder that was brought so far, and the means to bring more."""

    cluster: RayCluster
    _known: dict[str, Known] = field(default_factory=dict)
    _brought: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def send(self, files: Sequence[tuple[str, str]]) -> None:
        """Put files, `(ray node, path)`, where agents there look for them."""
        for node, path in files:
            here = Path(path)
            try:
                self.cluster.call(node, "write", path, here.read_bytes(), 0o600)
            except LookupError:
                # A node without a runner has no agents that a newer attempt would have to fence.
                if here.name != CURRENT:
                    raise

    def fetch(self, folders: Sequence[tuple[str, str]]) -> list[str]:
        """Bring what is new in folders, `(ray node, path)`; the files that changed here.

        They are all that someone waits for: what is known about others is forgotten.
        """
        wanted = {folder for _, folder in folders}
        self._known = {folder: files for folder, files in self._known.items() if folder in wanted}
        changed = []
        for node, folder in folders:
            try:
                changed += self._fetch(node, folder)
            except LookupError:  # its runner is gone: what it had not told is lost with it
                self._known.pop(folder, None)
        return changed

    def _fetch(self, node: str, folder: str) -> list[str]:
        known = self._known.setdefault(folder, _read_known(Path(folder)))
        changed = []
        for name, inode, offset, at, body in self.cluster.call(node, "news", folder, known):
            here = Path(folder, name)
            here.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if name == EVENTS and any(word in body for word in TELL_OF_FILES):
                self.pull(node, AttemptSpec.read(Path(folder, SPEC)).checkpoints)
            _put(here, offset, body)
            known[name] = (inode, offset + len(body), at)
            changed.append(str(here))
        return changed

    def push(self, node: str, folder: str) -> int:
        """Make a folder there hold what it holds here; how many files were sent."""
        local = ServicePaths(Path(folder), None)
        there = {name: size for name, size, _, _ in self.cluster.call(node, "listing", folder)}
        sent = 0
        for name, size, _, mode in local.listing(Path(folder)):
            if there.get(name) == size and size > SMALL:
                continue
            # Small files say which of the large ones count, so they always go.
            path = Path(folder, name)
            self.cluster.call(node, "write", str(path), path.read_bytes(), mode)
            sent += 1
        return sent

    def artifacts(self, node: str, workdir: str, inside: str) -> Any:
        """List what a job left there; see `Runner.artifacts`."""
        return self.cluster.call(node, "artifacts", workdir, inside)

    def artifact(self, node: str, workdir: str, inside: str, path: str, offset: int) -> Any:
        """A piece of a file of it as text, its size and its inode; None if it is not there."""
        piece = self.cluster.call(node, "artifact", workdir, inside, path, offset)
        return piece and [b64encode(piece[0]).decode(), *piece[1:]]

    def pull(self, node: str, folder: str) -> int:
        """Make a folder here hold what it holds there; how many files were brought."""
        here, brought = Path(folder), 0
        listing = self.cluster.call(node, "listing", folder)
        for name, size, at, mode in listing:
            path = here / name
            if path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (size, at):
                continue
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            with fresh.open("wb") as out:
                # As long as it was listed: its job may go on writing forever.
                while (left := size - out.tell()) > 0 and (
                    piece := self.cluster.call(node, "read", str(path), out.tell(), min(MOST, left))
                ):
                    out.write(piece)
            fresh.chmod(mode)
            os.utime(fresh, ns=(at, at))
            fresh.replace(path)
            brought += 1
        names = {name for name, *_ in listing}
        for gone in self._brought.get((node, folder), set()) - names:
            (here / gone).unlink(missing_ok=True)
        self._brought[node, folder] = names
        return brought


def _read_known(folder: Path) -> Known:
    """The part of files that only grow which an earlier life of ours has brought."""
    there = folder.iterdir() if folder.is_dir() else ()
    return {file.name: (0, file.stat().st_size, 0) for file in there if file.suffix in GROWING}


def _put(path: Path, offset: int, body: bytes) -> None:
    """Write from `offset` on: the file is then as long as what was brought of it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.seek(offset)
        out.write(body)
        out.truncate()


if __name__ == "__main__":
    # Whatever prints here, Ray's own processes included, prints to the log instead.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.stdin, out)
    os._exit(0)  # nothing of Ray's that could wait for a cluster that is gone
