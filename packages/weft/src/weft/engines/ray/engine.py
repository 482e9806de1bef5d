"""`--engine ray`: jobs on the nodes of a Ray cluster, which is begun here if there is none."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, NodeId
from weft.core.plan.about import Wants
from weft.engines.fleet.engine import FleetEngine
from weft.engines.fleet.port import ControllerUnreachable
from weft.engines.fleet.requests import open_gang
from weft.engines.machine.job_environment import check_names
from weft.engines.ray.agents import ABILITIES, RayManager
from weft.engines.ray.artifacts import RayArtifacts
from weft.engines.ray.starting import PORT, find_setup, read_token
from weft.wire.attempt import CURRENT, MASTER, folder_of


@dataclass
class RayEngine(FleetEngine):
    """Jobs on a Ray cluster: that at `address`, else that of RAY_ADDRESS, else one begun here.

    `ip` and `port` are those of a head that is begun here, `name`, `kind`, `gpus` and `slots` what
    this machine has then; default: what is found. `token` is the file with the token of a
    cluster that is there already, whose idle nodes are given back when the service ends, unless
    with `keep_nodes`. `nodes` are those that may be used: all, or labelled ones only. `files` says
    whether all nodes have the state folder: shared, carried (none has, its files go through
    Ray), or auto, which finds out for each. `carried_gb` is the most that is brought of one job's
    checkpoints, and of its output, from a node that does not have the state folder.
    """

    state: Path = field(metadata={"settable": False})
    address: str = ""
    ip: str = ""
    port: int = PORT
    name: str = ""
    kind: str = ""
    gpus: int = -1
    slots: int = 0
    token: str = ""
    keep_nodes: bool = False
    uses: Literal["all", "labelled"] = field(default="all", metadata={"name": "nodes"})
    files: Literal["auto", "shared", "carried"] = "auto"
    carried_gb: float = 200.0
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES
    declares = (("", ABILITIES.controls),)

    def __post_init__(self) -> None:
        check_names(self.pass_env)
        if not self.carried_gb > 0.0:
            raise InvalidConfig(f"carried_gb must be above 0, not {self.carried_gb:g}")
        if self.token:
            read_token(Path(self.token))
        self.state = Path(self.state).absolute()
        address = self.address or os.environ.get("RAY_ADDRESS", "")
        gpus = None if self.gpus < 0 else self.gpus
        self._ray = RayManager(
            self.state,
            address,
            find_setup(self.name, self.kind, gpus, self.slots, self.ip, self.port),
            files=self.files,
            token=Path(self.token).absolute() if self.token else None,
            pass_env=self.pass_env,
            keep_nodes=self.keep_nodes,
            uses=self.uses,
            carried_gb=self.carried_gb,
        )
        super().__init__(self._ray, self.state, "Ray", RayChannel(self._ray))
        self.artifacts = RayArtifacts(self._ray, self.artifact_folder, self._nodes_of)

    def _nodes_of(self, job: Job, attempt: int) -> list[NodeId]:
        """The nodes of the last attempt that was prepared."""
        tried = (open_gang(folder_of(self.state, job.id, at)) for at in range(attempt, 0, -1))
        gang = next(filter(None, tried), None)
        return [part.node for part in gang.parts] if gang is not None else []

    @property
    def invitation(self) -> str:
        """The line that makes another machine join; empty for a cluster that we did not begin."""
        head = self._ray.head
        if head is None:
            return ""
        return f"weft join {head.address} < {head.token}"


# Files of attempts to and from nodes that do not share the service's folder, through Ray.

PAUSE_S = 0.4  # between two questions for news of the same folders


@dataclass
class RayChannel:
    """Carries what `manager` says is not shared; the rest is there already."""

    manager: RayManager
    _fetched: float = 0.0
    _met: set[Path] = field(default_factory=set)

    async def send(self, files: Sequence[Path]) -> None:
        """Bring files of parts to their nodes, and the job's newest attempt to all it may be on."""
        wanted = [
            (node, str(file))
            for file in files
            for node in (
                self.manager.unshared_nodes()
                if file.name == CURRENT
                else self.manager.unshared_nodes(file.parent)
            )
        ]
        if not wanted:
            return
        try:
            await self.manager.carry_files("send", files=wanted)
        except (OSError, LookupError, ControllerUnreachable) as error:
            raise EngineError(f"cannot send files through Ray: {error}") from error

    async def fetch(self, folders: Sequence[Path]) -> Mapping[Path, Sequence[str]]:
        """Bring what agents wrote; where rank 0 listens goes on to the other nodes of its gang."""
        now = time.monotonic()
        if now - self._fetched < PAUSE_S:
            return {}
        self._fetched = now
        apart = {folder: self.manager.unshared_nodes(folder) for folder in folders}
        wanted = [(node, str(folder)) for folder, nodes in apart.items() for node in nodes]
        self._met &= {folder.parent for folder in folders}
        meeting = {folder.parent for folder, nodes in apart.items() if nodes} - self._met
        wanted += [
            (node, str(folder.parent))
            for folder, nodes in apart.items()
            for node in nodes
            if folder.parent in meeting
        ]
        if not wanted:
            return {}
        try:
            left_out = await self.manager.carry_files("fetch", folders=wanted)
        except ControllerUnreachable:
            return {}  # the manager's own poll reports it
        for whole in meeting:
            if (whole / MASTER).exists():
                await self._tell_all(whole, [folder for folder in apart if folder.parent == whole])
        return {Path(folder): texts for folder, texts in left_out.items()}

    async def _tell_all(self, whole: Path, parts: Sequence[Path]) -> None:
        nodes = {node for part in parts for node in self.manager.unshared_nodes(part)}
        files = [(node, str(whole / MASTER)) for node in sorted(nodes)]
        await self.manager.carry_files("send", files=files)
        self._met.add(whole)
