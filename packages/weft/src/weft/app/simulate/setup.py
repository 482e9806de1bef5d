"""A person's request, as plain values that travel between processes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path

from weft.core.asleep.rules import StopRules
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Job, NodeId
from weft.core.model.trace import Trace
from weft.core.paths import expand
from weft.core.plan.policy import Policy
from weft.core.spec.parameters import settings
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import Described, read_spec
from weft.core.stops import SLEEPS, Rung
from weft.formulas.fairness.shares import check_weights
from weft.frozen import frozen
from weft.perf.restart import state_gb
from weft.sim.asleep import drawn_gb
from weft.sim.faults import Faults
from weft.sim.loans import DailyDemand, Loans, MachineDemand, RecordedDemand
from weft.traces.options import Options

RESTART, LIVE = "restart", "live"
RESIZE_EXAMPLE = "restart, live, or live:prepare_s=5,pause_s=0.1,restart_s=1,restart_gb_s=17"


@frozen
class LiveTerms:
    """The cost of a live resize, as `benchmarks.live_resize` measured it of our own runtime.

    A pause of `pause_s`, and `pause_gb_s` for each GB of state that new processes are sent.
    `prepare_s` is how long these get ready while the others train; None: as long as a restart of
    the job takes, so that nothing but the mechanism differs. A job that was stopped comes back from
    its checkpoint within `restart_s`, and `restart_gb_s` for each GB; None: as published.
    """

    pause_s: float = 0.05
    pause_gb_s: float = 0.7
    prepare_s: float | None = None
    restart_s: float | None = None
    restart_gb_s: float = 0.0

    def restart_of(self, job: Job) -> float | None:
        """Seconds of a later start; None for what was published."""
        if self.restart_s is None:
            return None
        return self.restart_s + self.restart_gb_s * state_gb(job.model)

    def pause_of(self, job: Job) -> float:
        """Seconds without progress when a job is sent to other devices."""
        return self.pause_s + self.pause_gb_s * state_gb(job.model)


def read_resize(text: str) -> LiveTerms | None:
    """The terms of live resizes; None for restarts."""
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if rest else []
    if name not in (RESTART, LIVE) or (name == RESTART and pairs) or not all(p[1] for p in pairs):
        raise InvalidConfig(f"--resize {text!r} means nothing", hint=f"say {RESIZE_EXAMPLE}")
    if name == RESTART:
        return None
    typed = {key.strip(): value for key, _, value in pairs}
    terms = LiveTerms(**settings("--resize live", LiveTerms, typed))
    for key, value in asdict(terms).items():
        if value is not None and not 0.0 <= value < float("inf"):
            raise InvalidConfig(f"--resize live: {key} is {value:g}, expected 0 or more seconds")
    return terms


# How running jobs of a simulation can be put to sleep, in the words that people type.


def read_stops(text: str) -> frozenset[Rung]:
    """The rungs that are named; InvalidConfig for a name that is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {str(rung): rung for rung in SLEEPS}
    if wrong := [name for name in names if name not in known]:
        raise InvalidConfig(
            f"stops: {wrong[0]!r} is not a way to put jobs to sleep",
            hint="--stops takes freeze, suspend or freeze,suspend",
        )
    return frozenset(known[name] for name in names)


def stop_rules(text: str, cluster: Cluster) -> StopRules | None:
    """The ways to stop jobs on a cluster; None where every stop is a checkpoint."""
    rungs = read_stops(text)
    if not rungs:
        return None

    def memory(job: Job, on: Allocation) -> float:
        at = cluster.index.get(on.slices[0].node)
        return drawn_gb(job, cluster.nodes[at].device_gb if at is not None else 0.0)

    return StopRules(rungs, memory=memory, all_save=True)


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
        """The name of the workload in reports."""
        return self.workload if isinstance(self.workload, str) else self.workload.name

    @property
    def policy_name(self) -> str:
        """The name of the policy in reports: the words that were typed."""
        if isinstance(self.policy, str):
            return self.policy
        if isinstance(self.policy, (PartSpec, Mapping)):
            return read_spec("policy", self.policy).text
        return self.policy.about.name


EXAMPLE = "8x8:v100,low=0.3,high=0.95, or 8x8:v100,trace=needed.csv"
OWN = ("headroom", "speed")


def read_loans(text: str) -> Loans:
    """NODESxGPUS:KIND, then how many their owner needs: a rhythm by KEY=VALUE, or `trace=FILE`."""
    if not text:
        return Loans()
    machines, *pairs = text.split(",")
    typed = dict(_pair(text, pair) for pair in pairs)
    nodes = tuple(
        replace(node, id=NodeId(f"loan-{i}"), loaned=True)
        for i, node in enumerate(parse_cluster(machines).nodes)
    )
    own = settings("--loan", Loans, {key: typed.pop(key) for key in OWN if key in typed})
    return Loans(nodes, _needed(typed), **own)


def _pair(text: str, pair: str) -> tuple[str, str]:
    key, equals, value = pair.strip().partition("=")
    if not equals:
        raise InvalidConfig(
            f"--loan {text!r}: {pair!r} is not KEY=VALUE", hint=f"for example {EXAMPLE}"
        )
    return key, value


def _needed(typed: dict[str, str]) -> MachineDemand:
    trace = typed.pop("trace", None)
    if trace is None:
        return DailyDemand(**settings("--loan", DailyDemand, typed))
    if typed:
        raise InvalidConfig(
            f"--loan: {', '.join(typed)} has no effect beside a trace",
            hint=f"beside trace there may be {' and '.join(OWN)}",
        )
    return read_needed(expand(trace))


def read_needed(path: Path) -> RecordedDemand:
    """A CSV file of `time_s,needed`: machines that their owner needs from a time on."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InvalidConfig(f"cannot read the loan trace {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidConfig(f"the loan trace {path} is not CSV in UTF-8: {error}") from error
    points = []
    for number, row in enumerate(rows, 2):
        try:
            points.append((float(row["time_s"]), int(row["needed"])))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidConfig(
                f"{path}, line {number}: {dict(row)} is not a time and a number of machines",
                hint="the file begins with the line time_s,needed",
            ) from error
    return RecordedDemand(tuple(points))
