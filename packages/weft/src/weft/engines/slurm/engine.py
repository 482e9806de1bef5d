"""Jobs on an existing Slurm cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.plan.about import Wants
from weft.engines.attempts.agent_engine import AGENT_CONTROLS
from weft.engines.fleet.engine import FleetEngine
from weft.engines.fleet.port import Manager
from weft.engines.machine.job_environment import check_names
from weft.engines.machine.users import check_users
from weft.engines.slurm.accounts import Charges, Submitters, read_lists
from weft.engines.slurm.native import NativeSlurm
from weft.engines.slurm.offers import SlurmOffers
from weft.engines.slurm.pilot import CONTROLS as PILOT
from weft.engines.slurm.pilot import PilotSlurm, read_pools
from weft.engines.slurm.script import SbatchOptions
from weft.wire.identity import Identity

MODES = ("native", "pilot")
SUBMITTERS = ("person", "client", "service")


@dataclass
class SlurmEngine(FleetEngine):
    """Jobs on an existing Slurm cluster, whose nodes all have the state folder.

    `mode` native submits one batch job for each attempt; pilot holds whole nodes (`nodes`, joined
    by `/`, or all of the partition) and runs jobs inside as steps, with exact devices; nodes
    written `TENANT:NODE+NODE/TENANT:NODE` are held for these tenants alone, by their accounts.
    `partition`, `account`, `qos` and `reservation` are handed to sbatch; `accounts`, `qoses` and
    `partitions` say which a tenant has (`TENANT:NAME+NAME/TENANT:NAME`), the usual one first.
    `time_min` is the time limit in minutes of jobs that have none, or of pilots. `slots` is for
    nodes without GPUs, 0 for one per core. `python` is an interpreter with Weft on the nodes, by
    default this one. With `users`, where the service is root, jobs run as their tenants' users: as
    batch jobs of these (`submit_as` person, which is native's default), or as ranks of agents that
    are root (service, a pilot's only way). A service that is not root has each user's own client
    submit them (`submit_as` client, `weft slurm-client`).
    """

    state: Path = field(metadata={"settable": False})
    mode: str = "native"
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    time_min: int = 0
    accounts: str = ""
    qoses: str = ""
    partitions: str = ""
    held: str = field(default="", metadata={"name": "nodes"})
    slots: int = 0
    python: str = ""
    submit_as: str = ""
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})
    users: Mapping[str, Identity] = field(default_factory=dict, metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES | Wants.USERS
    declares = (("", AGENT_CONTROLS), (":mode=pilot", PILOT))

    def __post_init__(self) -> None:
        check_names(self.pass_env)
        self.state = Path(self.state).absolute()
        by_client = self.submit_as == "client"
        check_users(self.users, self.state, by_client=by_client)
        if self.mode not in MODES:
            raise InvalidConfig(
                f"slurm: mode is {self.mode!r}", hint=f"mode is one of {', '.join(MODES)}"
            )
        if self.time_min < 0:
            raise InvalidConfig(
                f"slurm: time_min is {self.time_min}",
                hint="write minutes; 0 leaves the limit to the partition",
            )
        person = self._submits_as_person()
        wishes = SbatchOptions(
            python=self.python or sys.executable,
            owner="",
            partition=self.partition,
            account=self.account,
            qos=self.qos,
            reservation=self.reservation,
            time_min=self.time_min,
        )
        written = {"account": self.accounts, "qos": self.qoses, "partition": self.partitions}
        lists = {name: read_lists(text, name) for name, text in written.items() if text}
        manager: Manager
        if self.mode == "pilot":
            folder = self.state / "pilots"
            pools = read_pools(self.held)
            charges = Charges(wishes, lists)
            manager = PilotSlurm(charges, folder, pools, self.slots, self.pass_env)
        else:
            submitters = Submitters(self.state, self.users if person else {})
            offers = SlurmOffers(self.state / "offers", self.users) if by_client else None
            manager = native = NativeSlurm(
                Charges(wishes, lists),
                self.slots,
                self.pass_env,
                submitters,
                as_users=bool(self.users),
                offers=offers,
            )
            self.batch_works = native if by_client else None
        super().__init__(manager, self.state, "slurmctld", users=self.users)

    def _submits_as_person(self) -> bool:
        """True if users submit their own batch jobs."""
        if self.submit_as not in ("", *SUBMITTERS):
            raise InvalidConfig(
                f"slurm: submit_as is {self.submit_as!r}",
                hint=f"submit_as is one of {', '.join(SUBMITTERS)}",
            )
        if self.submit_as in ("person", "client") and (self.mode == "pilot" or not self.users):
            raise InvalidConfig(
                "slurm: jobs cannot be submitted as their users here",
                hint=f"submit_as={self.submit_as} needs mode=native and `weft serve --users FILE`",
            )
        return bool(self.users) and self.mode == "native" and self.submit_as != "service"
