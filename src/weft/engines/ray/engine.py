"""`--engine ray`: jobs on the nodes of a Ray cluster, which is begun here if there is none."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from weft.core.plan.about import Wants
from weft.engines.fleet.engine import FleetEngine
from weft.engines.machine.job_environment import check_names
from weft.engines.ray.agents import ABILITIES, RayManager
from weft.engines.ray.channel import RayChannel
from weft.engines.ray.starting import PORT, find_setup
from weft.engines.ray.token import read_token


@dataclass
class RayEngine(FleetEngine):
    """Jobs on a Ray cluster: that at `address`, else that of RAY_ADDRESS, else one begun here.

    `ip` and `port` are those of a head that is begun here, `name`, `kind`, `gpus` and `slots` what
    this machine has then; default: what is found. `token` is the file with the token of a
    cluster that is there already, whose idle nodes are given back when the service ends, unless
    with `keep_nodes`. `nodes` are those that may be used: all, or labelled ones only. `files` says
    whether all nodes have the state folder: shared, carried (nobody has, its files go through
    Ray), or auto, which finds out for each.
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
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES
    declares = (("", ABILITIES.controls),)

    def __post_init__(self) -> None:
        check_names(self.pass_env)
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
        )
        super().__init__(self._ray, self.state, "Ray", RayChannel(self._ray))

    @property
    def invitation(self) -> str:
        """The line that makes another machine join; empty for a cluster that we did not begin."""
        head = self._ray.head
        if head is None:
            return ""
        return f"weft join {head.address} < {head.token}"
