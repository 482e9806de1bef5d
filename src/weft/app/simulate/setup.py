"""What a person asks for, as plain values that travel between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from weft.app.simulate.resize_text import RESTART, read_resize, read_stops
from weft.core.model.trace import Trace
from weft.core.plan.policy import Policy
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import Described, read_spec
from weft.formulas.fairness.shares import check_weights
from weft.frozen import frozen
from weft.sim.faults import Faults
from weft.sim.loans import Loans
from weft.traces.options import Options

DEFAULT_CLUSTER = "64x8:v100"
NO_FAULTS = Faults()
NO_LOANS = Loans()
ALL_JOBS = Options()


@frozen
class Setup:
    """One simulation. Empty strings and None leave the choice to the workload or the policy.

    `jobs` and `load` shape built-in workloads; `options` filter files. `restart_cost` None
    lets each job's model say; `checkpoint_s` is how long a stop takes. `profiles` is a folder
    of measured tables; `free_moves` lets a job change nodes without a restart if it keeps its
    shape, as the Sia simulator does. `perf` names another truth about speeds;
    `sharing` is how a device serves several jobs at once: timeslicing or mps; `pairs` a file
    of speeds of jobs beside each other, as `weft profile` writes it. `weights` are what users and
    tenants are entitled to against each other; without any they are the workload's own. `loans` are
    machines that come and go. `resize` is how running jobs change their devices: `restart`, or
    `live` with its terms. `stops` names how running jobs can be put to sleep: `freeze`, `suspend`,
    both joined by a comma, or nothing. `sleep_nodes` is how many idle nodes stay awake while others
    are put to sleep, None for all; a node needs `boot_s` seconds to come back.
    """

    workload: str | Trace
    policy: Described | Policy
    cluster: str = ""
    seed: int = 0
    predictor: str = ""
    jobs: int | None = None
    load: float | None = None
    restart_cost: float | None = None
    checkpoint_s: float = 0.0
    faults: Faults = NO_FAULTS
    options: Options = ALL_JOBS
    events: Path | None = None
    profiles: str = ""
    free_moves: bool = False
    perf: str = ""
    sharing: str = "timeslicing"
    pairs: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    loans: Loans = NO_LOANS
    resize: str = RESTART
    stops: str = ""
    sleep_nodes: int | None = None
    boot_s: float = 300.0

    def __post_init__(self) -> None:
        check_weights("weights", self.weights)
        read_resize(self.resize)
        read_stops(self.stops)

    @property
    def workload_name(self) -> str:
        """What reports call the workload."""
        return self.workload if isinstance(self.workload, str) else self.workload.name

    @property
    def policy_name(self) -> str:
        """What reports call the policy: the words that were typed."""
        if isinstance(self.policy, str):
            return self.policy
        if isinstance(self.policy, (PartSpec, Mapping)):
            return read_spec("policy", self.policy).text
        return self.policy.about.name
