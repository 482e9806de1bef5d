"""Files between the service and nodes that do not share its folder, through their runners.

What jobs leave there may be huge, full of holes, or change as it is read. Of each job a bounded
amount is brought, holes stay holes, and each folder has its turn: none waits for that of another.
"""

from __future__ import annotations

import os
import shutil
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from weft.engines.attempts.rounds import MACHINE_WIDE
from weft.engines.ray.node_files import GROWING, MOST, ServicePaths, place_file, read_data
from weft.wire.attempt import CURRENT, EVENTS, SPEC, AttemptSpec

SMALL = 1 << 16
TURN_S = 2.0  # for all checkpoints, before others have their turn
TELL_OF_FILES = (b'"event":"saved"', b'"event":"ended"')  # then checkpoints are brought first
# The words for a job whose files do not come.
CHECKPOINTS = "its checkpoints are not all brought from its node"
OUTPUT = "its output is not brought from its node any more"
FILES = "its files cannot be brought from its node now"
Known = dict[str, tuple[int, int, int]]  # name to inode, bytes and time of change over there
Folder = tuple[str, str]  # the node of Ray, and the path


class Runners(Protocol):
    """The means to ask the runners of nodes; LookupError where a node has none."""

    def call(self, node: str, method: str, *args: object) -> Any:
        """The answer of one; OSError as it comes."""
        ...


class LeftOut(Exception):  # noqa: N818 - a result, not a mistake
    """Some files are not brought: the text says why."""


class Bringing(NamedTuple):
    """Checkpoints that are being brought, and up to where the log tells of no newer ones."""

    pieces: Iterator[None]
    until: int


@dataclass
class Carrier:
    """The part of each folder that was brought so far, and the means to bring more.

    `most_gb` is the most that is brought of one folder.
    """

    cluster: Runners
    most_gb: float
    _known: dict[str, Known] = field(default_factory=dict)
    _brought: dict[Folder, set[str]] = field(default_factory=dict)
    _pulls: dict[Folder, Bringing] = field(default_factory=dict)
    _pushes: dict[Folder, Iterator[None]] = field(default_factory=dict)
    _said: dict[str, dict[str, str]] = field(default_factory=dict)

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

    def fetch(self, folders: Sequence[Folder]) -> dict[str, list[str]]:
        """Bring what is new in folders; what is left out of some, told once.

        They are all that someone waits for: what is known about others is forgotten.
        """
        keys, wanted = {(node, folder) for node, folder in folders}, {at for _, at in folders}
        self._known = {at: files for at, files in self._known.items() if at in wanted}
        self._said = {at: reasons for at, reasons in self._said.items() if at in wanted}
        self._pulls = {key: pull for key, pull in self._pulls.items() if key in keys}
        left_out: dict[str, list[str]] = {}
        late: set[str] = set()
        for node, folder in folders:
            if node in late:
                continue
            reasons = self._said.setdefault(folder, {})
            before = {*reasons}
            try:
                self._fetch(node, folder, reasons)
                reasons.pop(FILES, None)
            except LookupError:  # its runner is gone: what it had not told is lost with it
                self._known.pop(folder, None)
                self._pulls.pop((node, folder), None)
            except TimeoutError:
                late.add(node)  # asked again the next time
            except OSError as error:
                reasons.setdefault(FILES, str(error))
            if new := reasons.keys() - before:
                left_out[folder] = [f"{what}: {reasons[what]}" for what in sorted(new)]
        return left_out

    def _fetch(self, node: str, folder: str, reasons: dict[str, str]) -> None:
        known = self._known.setdefault(folder, _read_known(Path(folder)))
        for name, inode, offset, at, body in self.cluster.call(node, "news", folder, known):
            here = Path(folder, name)
            here.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if name == EVENTS and any(word in body for word in TELL_OF_FILES):
                until = self._bring_checkpoints(node, folder, offset + len(body), reasons)
                if until is None:
                    continue  # its log waits for them, and no other job does
                body = body[: max(until - offset, 0)]
            held = len(body) + sum(size for _, size, _ in known.values())
            if held <= self.most_gb * 1e9 or name == EVENTS:
                _put(here, offset, body)
            else:  # known from now on, but not kept
                reasons.setdefault(OUTPUT, f"at most {self.most_gb:g} GB of a job are (carried_gb)")
            known[name] = (inode, offset + len(body), at)

    def _bring_checkpoints(
        self, node: str, folder: str, end: int, reasons: dict[str, str]
    ) -> int | None:
        """The end of the log that may be brought now; None while checkpoints are under way."""
        key = node, folder
        if key not in self._pulls:
            pieces = self.pull(node, AttemptSpec.read(Path(folder, SPEC)).checkpoints)
            self._pulls[key] = Bringing(pieces, end)
        pieces, until = self._pulls[key]
        try:
            if not _advance(pieces, TURN_S / len(self._pulls)):
                return None
            reasons.pop(CHECKPOINTS, None)
        except LeftOut as error:
            reasons.setdefault(CHECKPOINTS, str(error))
        except BaseException:
            del self._pulls[key]
            raise
        del self._pulls[key]
        return until

    def push(self, node: str, folder: str, begins: bool) -> bool:
        """Make a folder there hold what it holds here, for a while; True once it does."""
        key = node, folder
        if begins or key not in self._pushes:
            self._pushes[key] = self._push(node, folder)
        try:
            if not _advance(self._pushes[key], TURN_S):
                return False
        except BaseException:
            del self._pushes[key]
            raise
        del self._pushes[key]
        return True

    def _push(self, node: str, folder: str) -> Iterator[None]:
        there = {name: size for name, size, *_ in self.cluster.call(node, "listing", folder)}
        for name, size, at, mode, _ in ServicePaths(Path(folder), None).list_files(Path(folder)):
            if there.get(name) == size and size > SMALL:
                continue
            # Small files say which of the large ones count, so they always go.
            path = Path(folder, name)
            if size <= MOST:
                self.cluster.call(node, "write", str(path), path.read_bytes(), mode)
                yield
                continue
            self.cluster.call(node, "write_piece", str(path), 0, b"")
            offset = 0
            while offset < size:
                start, body, _ = read_data(path, offset, MOST)
                if body:
                    self.cluster.call(node, "write_piece", str(path), start, body)
                offset = start + len(body)
                yield
            self.cluster.call(node, "finish", str(path), size, at, mode)

    def artifacts(self, node: str, workdir: str, inside: str) -> Any:
        """List what a job left there; see `Runner.artifacts`."""
        return self.cluster.call(node, "artifacts", workdir, inside)

    def artifact(self, node: str, workdir: str, inside: str, path: str, offset: int) -> Any:
        """A piece of a file of it as text, its size and its inode; None if it is not there."""
        piece = self.cluster.call(node, "artifact", workdir, inside, path, offset)
        return piece and [b64encode(piece[0]).decode(), *piece[1:]]

    def pull(self, node: str, folder: str) -> Iterator[None]:
        """Make a folder here hold what it holds there, piece by piece.

        LeftOut if that is too much: then nothing of it is brought, for a part may be useless.
        """
        here = Path(folder)
        try:
            listing = self.cluster.call(node, "listing", folder)
        except TimeoutError:
            raise
        except OSError as error:
            raise LeftOut(str(error)) from error
        new = [row for row in listing if not _is_same(here / row[0], *row[1:3])]
        left = self._check_room(here, _data_of(listing), _data_of(new))
        wrong: list[str] = []
        for name, size, at, mode, *_ in new:
            path = here / name
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                for brought in self._pull_file(node, path, size, at, mode):
                    left -= brought
                    if left < 0:
                        raise LeftOut("it holds more than was listed")
                    yield
            except OSError as error:
                if isinstance(error, TimeoutError) or error.errno in MACHINE_WIDE:
                    raise
                wrong.append(f"{name!r:.100}: {error}"[:500])
        names = {name for name, *_ in listing}
        for gone in self._brought.get((node, folder), set()) - names:
            with suppress(OSError):
                (here / gone).unlink()
        self._brought[node, folder] = names
        if wrong:
            raise LeftOut(f"{len(wrong)} of {len(listing)} files, such as {wrong[0]}")

    def _pull_file(self, node: str, path: Path, size: int, at: int, mode: int) -> Iterator[int]:
        """Bring a file as long as it was listed: its job may go on writing forever."""
        fresh = path.with_name(f".bringing-{node}")
        first = None
        offset = 0
        try:
            with fresh.open("wb") as out:
                while offset < size:
                    piece = self.cluster.call(
                        node, "read", str(path), offset, min(MOST, size - offset)
                    )
                    if isinstance(piece, bytes):  # of a runner of the last version
                        piece = [offset if piece else 0, piece, None]
                    if piece is None or (first := first or piece)[2] != piece[2]:
                        return  # removed or replaced meanwhile: the job is saving again
                    start, body, _ = piece
                    if not body and start < size:
                        return  # cut short meanwhile
                    out.seek(min(start, size))
                    out.write(body[: max(size - start, 0)])
                    offset = start + len(body)
                    yield len(body)
            place_file(fresh, path, size, at, mode)
        finally:
            fresh.unlink(missing_ok=True)

    def _check_room(self, here: Path, whole: int, new: int) -> int:
        """The bytes that may be brought into a folder; LeftOut if what it is to get is more."""
        while not here.exists():
            here = here.parent
        most, free = int(self.most_gb * 1e9), shutil.disk_usage(here).free
        if whole > most:
            raise LeftOut(
                f"they are {whole / 1e9:.4g} GB, and at most {self.most_gb:g} GB of a job are "
                "brought (carried_gb)"
            )
        if new > free // 2:
            raise LeftOut(
                f"{new / 1e9:.4g} GB of them are new, and at most half of the {free / 1e9:.4g} GB "
                "that are free here is filled"
            )
        return min(most - whole + new, free // 2)


def _advance(pieces: Iterator[None], seconds: float) -> bool:
    """Go on for a while, by one piece at least; True if there are no more."""
    until = time.monotonic() + seconds
    return all(time.monotonic() < until for _ in pieces)


def _data_of(rows: Sequence[Sequence[Any]]) -> int:
    """The bytes of files without holes; a runner of the last version tells none of these."""
    return sum([*row, row[1]][4] for row in rows)


def _is_same(path: Path, size: int, at: int) -> bool:
    return path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (size, at)


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
