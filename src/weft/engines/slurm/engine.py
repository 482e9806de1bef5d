"""Jobs on an existing Slurm cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.plan.about import Wants
from weft.engines.fleet.engine import FleetEngine
from weft.engines.fleet.port import Manager
from weft.engines.machine.job_environment import check_names
from weft.engines.slurm.native import CONTROLS as NATIVE
from weft.engines.slurm.native import NativeSlurm
from weft.engines.slurm.pilot import CONTROLS as PILOT
from weft.engines.slurm.pilot import PilotSlurm
from weft.engines.slurm.script import SbatchOptions

MODES = ("native", "pilot")


@dataclass
class SlurmEngine(FleetEngine):
    """Jobs on an existing Slurm cluster, whose nodes all have the state folder.

    `mode` native submits one batch job for each attempt; pilot holds whole nodes (`nodes`, joined
    by `/`, or all of the partition) and runs jobs inside as steps, with exact devices.
    `partition`, `account`, `qos` and `reservation` are handed to sbatch. `time_min` is the time
    limit in minutes of jobs that have none, or of pilots. `slots` is for nodes without GPUs, 0 for
    one a core. `python` is an interpreter with Weft on the nodes, by default this one.
    """

    state: Path = field(metadata={"settable": False})
    mode: str = "native"
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    time_min: int = 0
    held: str = field(default="", metadata={"name": "nodes"})
    slots: int = 0
    python: str = ""
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES
    declares = (("", NATIVE), (":mode=pilot", PILOT))

    def __post_init__(self) -> None:
        check_names(self.pass_env)
        if self.mode not in MODES:
            raise InvalidConfig(
                f"slurm: mode is {self.mode!r}", hint=f"mode is one of {', '.join(MODES)}"
            )
        wishes = SbatchOptions(
            python=self.python or sys.executable,
            owner="",
            partition=self.partition,
            account=self.account,
            qos=self.qos,
            reservation=self.reservation,
            time_min=self.time_min,
        )
        manager: Manager
        if self.mode == "pilot":
            folder = Path(self.state).absolute() / "pilots"
            manager = PilotSlurm(wishes, folder, self.held, self.slots, self.pass_env)
        else:
            manager = NativeSlurm(wishes, self.slots, self.pass_env)
        super().__init__(manager, self.state, "slurmctld")
