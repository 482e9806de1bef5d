"""The detached actor of Ray on each node: it starts agents and says how they are.

Paths are always the service's. Where the state folder is not shared they lie below a folder of
the node's own, and the request of an attempt names that folder instead.

Nothing here imports Ray, and jobs never see it. The agents end with their runner, and the runner
with its node's raylet, so that nothing goes on where Ray has given a node up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.core.errors import UnknownName
from weft.core.paths import expand
from weft.engines.attempts.watch import Footprint, end_all
from weft.engines.machine.artifacts import ArtifactFolder
from weft.engines.machine.job_environment import filter_environment
from weft.engines.ray.node_files import MOST, ServicePaths
from weft.version import __version__
from weft.wire.attempt import AGENT_LOG, SPEC, read_json, write_whole
from weft.wire.processes import start_time

REMEMBER_S = 600.0  # how long an agent that ended is still reported
CLEAR_S = 5.0
MARK = "ray-shared"  # a file in the state folder by which nodes that share it know it
OWN = "WEFT_NODE_STATE"  # in a node's environment: where it keeps files of a service's jobs
DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass
class Ward:
    """One agent: the whole gang's nodes are kept with it, for later requests."""

    process: subprocess.Popen[bytes]
    began: int
    folder: Path
    nodes: tuple[str, ...]
    ended: float = 0.0


class Runner:
    """Agents of one node. Every method returns at once; only one runs at a time."""

    def __init__(self, root: str, own: str, mark: str, files: str) -> None:
        """`root` is the service's state folder, `own` where its files are kept if it is not here.

        It is here if it holds the file MARK with that text, or if `files` is shared.
        """
        self._wards: dict[tuple[str, int], Ward] = {}
        shared = files == "shared" or (files == "auto" and _reads(Path(root, MARK), mark))
        own = os.environ.get(OWN, own)
        self._files = ServicePaths(Path(root), None if shared else expand(own))

    def look(self) -> dict[str, Any]:  # by this name: runners outlive the version that made them
        """Everything that is known here, in one answer."""
        now = time.monotonic()
        agents = []
        for (job, attempt), ward in [*self._wards.items()]:
            code = ward.process.poll()
            if code is not None and not ward.ended:
                ward.ended = now
            if ward.ended and now - ward.ended > REMEMBER_S:
                del self._wards[job, attempt]
                continue
            agents.append([job, attempt, code, list(ward.nodes)])
        shared = self._files.own is None
        return {"version": __version__, "agents": agents, "shared": shared}

    def call(self, name: str, args: Sequence[Any]) -> Any:
        calls: dict[str, Callable[..., Any]] = {
            "start": self.start,
            "end": self.end,
            "write": self.write,
            "write_piece": self.write_piece,
            "finish": self.finish,
            "news": self.news,
            "listing": self.listing,
            "read": self.read,
            "artifacts": self.artifacts,
            "artifact": self.artifact,
        }
        return calls[name](*args)

    def start(
        self, job: str, attempt: int, folder: str, nodes: Sequence[str], pass_env: Sequence[str]
    ) -> None:
        """Start the agent of a part; a second time changes nothing."""
        if (job, attempt) in self._wards:
            return
        here = self._files.place(Path(folder))
        here.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._name_devices(here)
        command = ["-P", "-m", "weft.node.with_parent", str(here), str(os.getpid())]
        with (here / AGENT_LOG).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own agent
                [sys.executable, *command],
                env=_environment(pass_env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        began = start_time(process.pid) or 0
        self._wards[job, attempt] = Ward(process, began, here, tuple(nodes))

    def end(self, job: str, attempt: int) -> list[int]:
        """End an agent and all it started, at once; pids that will not go."""
        ward = self._wards.get((job, attempt))
        if ward is None:
            return []
        left = end_all(Footprint(ward.folder, (ward.process.pid, ward.began)), CLEAR_S)
        ward.process.poll()
        return left

    def write(self, path: str, body: bytes, mode: int) -> None:
        """Put a file of the service's where agents here look for it."""
        self._files.write(Path(path), body, mode)

    def write_piece(self, path: str, offset: int, body: bytes) -> None:
        """A piece of such a file; see `ServicePaths.write_piece`."""
        self._files.write_piece(Path(path), offset, body)

    def finish(self, path: str, size: int, at: int, mode: int) -> None:
        """Put it in its place; see `ServicePaths.finish`."""
        self._files.finish(Path(path), size, at, mode)

    def news(self, folder: str, have: Mapping[str, Sequence[int]]) -> list[list[Any]]:
        """Changes of a folder since then; see `ServicePaths.changed_files`."""
        return self._files.changed_files(Path(folder), have)

    def listing(self, folder: str) -> list[list[Any]]:
        """Every file below a folder; see `ServicePaths.list_files`."""
        return self._files.list_files(Path(folder))

    def read(self, path: str, offset: int, most: int) -> list[Any] | None:
        """The next piece of a file's data; see `ServicePaths.read`."""
        return self._files.read(Path(path), offset, most)

    def artifacts(self, workdir: str, inside: str) -> tuple[list[list[Any]], int]:
        """Files that a job left here, and how many others there are."""
        files, left_out = self._left_by(workdir, inside).list_files()
        return [[*file] for file in files], left_out

    def artifact(self, workdir: str, inside: str, path: str, offset: int) -> list[Any] | None:
        """Read a piece of an artifact, with its size and inode; None if it is not on this node."""
        try:
            return [*self._left_by(workdir, inside).read_piece(path, offset, MOST)]
        except UnknownName:
            return None

    def _left_by(self, workdir: str, inside: str) -> ArtifactFolder:
        return ArtifactFolder(self._files.place(Path(workdir)), inside, os.geteuid())

    def _name_devices(self, folder: Path) -> None:
        """Put Ray's numbers of our devices into the agent's request."""
        spec = read_json(folder / SPEC)
        if spec is None or spec.get("visible") is None:
            return
        mine = [device for device in os.environ.get(DEVICES, "").split(",") if device]
        write_whole(
            folder / SPEC, {**spec, "visible": ",".join(mine[at] for at in spec["devices"])}
        )


def _environment(pass_env: Sequence[str]) -> dict[str, str]:
    """The environment of agents: this node's own, without Ray's variables and secrets."""
    return {
        name: value
        for name, value in filter_environment(pass_env).items()
        if name not in (DEVICES, "OMP_NUM_THREADS")
    }


def _reads(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except OSError:
        return False
