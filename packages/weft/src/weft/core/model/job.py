"""Jobs, what they ask for, and what the scheduler gives them.

An allocation stores what the scheduler controls and nothing else; speed, links crossed and
the suffering of neighbours are consequences, derived elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from enum import IntEnum, StrEnum
from math import isfinite
from typing import Literal, NamedTuple, NewType

from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Traffic
from weft.core.model.execution import Execution
from weft.core.model.launch import Launch
from weft.frozen import frozen
from weft.plural import say_gpus

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)
MemoryPlace = tuple[float, ...]  # in the order for device memory: the lowest is first

MOST_GPUS = 1_000_000
LEAST_SHARE = 0.01  # of a device; below it claims would drown in the ledger's rounding
MOST_CPUS = 1e7
MOST_MEM_GB = 1e8
LEAST_MEM_GB = 1e-3
MOST_SLOWDOWN = 100.0
MOST = 1e15  # of any other number that a job brings along
LOWEST = -1.0  # priority of jobs that are promised nothing


class Tier(IntEnum):
    """The strength of a job's hold on its devices."""

    GUARANTEED = 0
    OPPORTUNISTIC = 1


class Or(StrEnum):
    """The choice of a user for a job whose deadline cannot be promised."""

    UNSAID = ""  # a policy that makes promises declines it
    DECLINE = "decline"
    WARN = "warn"  # it runs all the same, with a warning


class Stage(IntEnum):
    """The stage of an unfinished job between wish and fact."""

    PENDING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3


class Discipline(StrEnum):
    """The rule by which jobs on one device take turns: which may use what, and when."""

    NONE = "none"  # all at once: the driver's time slicing, or MPS
    LOCKSTEP = "lockstep"  # one iteration each in a common period, stages interleaved
    WORK_CONSERVING = "work-conserving"  # stages interleaved, each job at its own rate
    TIMESLICE = "timeslice"  # the whole device in turns
    PACED = "paced"  # opportunistic jobs in the gaps of guaranteed ones


@frozen
class Demand:
    """The number of GPUs that a job asks for, and the kinds that will do.

    `gpus` is what the submitter asked for; rigid jobs have `min = max = gpus`. `kinds` empty
    means any kind. `share` below 1 asks for that part of one GPU. `nodes` asks for exactly that
    number of nodes with the same number of its GPUs on each; 0 for any. Raises InvalidConfig
    for numbers that no cluster could serve.
    """

    gpus: int = 1
    min: int = 0
    max: int = 0
    kinds: tuple[str, ...] = ()
    share: float = 1.0
    nodes: int = 0

    def __post_init__(self) -> None:
        if self.min == 0:
            object.__setattr__(self, "min", self.gpus)
        if self.max == 0:
            object.__setattr__(self, "max", self.gpus)
        if not 0 <= self.min <= self.gpus <= self.max <= MOST_GPUS:
            raise InvalidConfig(
                f"gpus: {self.gpus}, from {self.min} to {self.max}, cannot be asked for",
                hint=f"0 <= min <= gpus <= max <= {MOST_GPUS}, in whole numbers",
            )
        if not LEAST_SHARE <= self.share <= 1.0:
            raise InvalidConfig(
                f"share: {self.share:g} of a GPU cannot be asked for",
                hint=f"share is from {LEAST_SHARE:g} to 1",
            )
        if self.nodes:
            _check_nodes(self)

    @property
    def rigid(self) -> bool:
        """True if only one GPU count will do."""
        return self.min == self.max

    @property
    def per_node(self) -> int:
        """GPUs on each node, of a job that asks for a number of nodes."""
        return self.gpus // self.nodes


@frozen
class BatchRange:
    """Global batch sizes a job may train with; present only on batch-adaptive jobs."""

    init: int
    max: int
    max_per_gpu: int


@frozen
class After:
    """Jobs that must have ended before another starts: well, in whatever way, or badly."""

    ok: tuple[JobId, ...] = ()
    any: tuple[JobId, ...] = ()
    not_ok: tuple[JobId, ...] = ()

    def __bool__(self) -> bool:
        """True if any job is waited for; `jobs` copies their names."""
        return bool(self.ok or self.any or self.not_ok)

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return (*self.ok, *self.any, *self.not_ok)

    def wrong_ends(self) -> Iterator[tuple[JobId, bool | None]]:
        """Each job that is waited for, with the end that makes the wait vain: True for a good one.

        None where every end will do.
        """
        for jobs, wrong in ((self.ok, False), (self.any, None), (self.not_ok, True)):
            yield from ((job, wrong) for job in jobs)


AT_ONCE = After()


@frozen
class Job:
    """A training job as submitted; it never changes.

    `cpus` and `mem_gb` are of the whole job on all its nodes; None asks for its devices' part of
    the host. Higher `priority` goes first, everywhere: 0 is normal, what is below gives way; a
    policy that weighs jobs takes it for a weight. `shareable` false keeps all other jobs off its
    devices; `slowdown` is how many times as long as alone its steps may take beside others, None
    for the service's default, and `gpu_mem_gb` the memory that it needs of each device, None where
    its submitter did not say. `launch` None: only simulators can run it. `app` names what the job
    is a part of, such as a hyper-parameter search; empty where it stands alone. At most
    `max_parallel` of an app's jobs hold devices at once, 0 for any number. It is not started before
    the jobs of `after` have ended as they should. `traffic` is what its workers say to each other,
    None if not declared. `deadline_or` says whether it may be declined where its deadline cannot
    be promised. `plans` are the execution plans that it can run, the one it runs by itself first;
    empty where it has one way only. Raises InvalidConfig for numbers that mean nothing.
    """

    id: JobId
    submitted: float = 0.0
    demand: Demand = Demand()
    tenant: str = ""
    user: str = ""
    model: str = ""
    batch: BatchRange | None = None
    priority: float = 0.0
    deadline: float | None = None
    tier: Tier = Tier.GUARANTEED
    cpus: float | None = None
    mem_gb: float | None = None
    hints: Mapping[str, float] = field(default_factory=dict)
    preemptible: bool = True
    shareable: bool = True
    launch: Launch | None = None
    app: str = ""
    max_parallel: int = 0
    after: After = AT_ONCE
    traffic: Traffic | None = None
    slowdown: float | None = None
    gpu_mem_gb: float | None = None
    deadline_or: Or = Or.UNSAID
    plans: tuple[Execution, ...] = ()

    def __post_init__(self) -> None:
        if self.plans:
            _check_plans(self)
        if self.slowdown is not None:
            _check(self.id, "slowdown", self.slowdown, 1.0, MOST_SLOWDOWN)
        if self.gpu_mem_gb is not None:
            _check(self.id, "gpu_mem_gb", self.gpu_mem_gb, LEAST_MEM_GB, MOST_MEM_GB)
        if self.cpus is not None:
            _check(self.id, "cpus", self.cpus, 0.0, MOST_CPUS)
        if self.mem_gb is not None:
            _check(self.id, "mem_gb", self.mem_gb, 0.0, MOST_MEM_GB)
        if self.deadline is not None:
            _check(self.id, "deadline", self.deadline, 0.0, MOST)
        if self.priority:
            _check(self.id, "priority", self.priority, -MOST, MOST)
        for name, value in self.hints.items():
            if not isfinite(value):
                _check(self.id, f"hints.{name}", value, -MOST, MOST)

    @property
    def conditional(self) -> bool:
        """True if no policy alone decides about it: it waits for more, for no GPU, or for nodes."""
        if self.after or self.max_parallel > 0:
            return True
        return self.demand.max == 0 or self.demand.nodes > 0

    @property
    def spot(self) -> bool:
        """True if it holds GPUs until others need them, above those whose class is lowest."""
        return self.tier is Tier.OPPORTUNISTIC and self.priority > LOWEST

    @property
    def stoppable(self) -> bool:
        """True if it may be stopped for others: it says so, or its class always gives way."""
        return self.preemptible or self.tier is Tier.OPPORTUNISTIC

    @property
    def owner(self) -> str:
        """The owner: its user, or its tenant where no user is named."""
        return self.user or self.tenant


def name_of(job: Job) -> str:
    """The name that people call a job."""
    return (job.launch.name if job.launch else "") or job.id


@frozen
class Slice:
    """Devices of one node, with their part of the host."""

    node: NodeId
    gpus: tuple[int, ...]
    cpus: float = 0.0
    mem_gb: float = 0.0


@frozen
class Sharing:
    """The terms on which a job lives with its neighbours on a device.

    `share` is its claim: the claims of guaranteed jobs on one device sum to at most 1.
    `phase` in [0, 1) places it inside a common period. `gpu_mem_gb` is its claim on the memory
    of each device, None where it is not counted. `discipline` is the order kept among neighbours.
    """

    share: float = 1.0
    tier: Tier = Tier.GUARANTEED
    phase: float = 0.0
    gpu_mem_gb: float | None = None
    discipline: Discipline = Discipline.NONE


EXCLUSIVE = Sharing()


@frozen
class Batch:
    """Samples per GPU and step, and how many such steps make one update."""

    per_gpu: int
    accumulate: int = 1


@frozen
class TimeShift:
    """The start of a job's iterations: every `period_s` seconds, `shift_s` after a multiple of it.

    Counted from time 0 of the cluster's clock (Unix time where jobs are real), so that jobs that
    share a network link keep out of each other's way. Raises InvalidConfig for other numbers.
    """

    period_s: float
    shift_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.shift_s < self.period_s < MOST:
            raise InvalidConfig(
                f"time shift: {self.shift_s:g} s in a period of {self.period_s:g} s",
                hint="0 <= shift_s < period_s, in seconds",
            )


@frozen
class Allocation:
    """Everything the scheduler controls about one running job, and nothing else.

    `time_shift` None: its iterations begin when they may; `plan` None: it runs as by itself.
    """

    slices: tuple[Slice, ...]
    sharing: Sharing = EXCLUSIVE
    batch: Batch | None = None
    time_shift: TimeShift | None = None
    plan: Execution | None = None

    @property
    def gpus(self) -> int:
        """Devices held, over all nodes."""
        slices = self.slices
        return len(slices[0].gpus) if len(slices) == 1 else sum(len(s.gpus) for s in slices)

    @property
    def counted_gpus(self) -> float:
        """GPUs held, a part of a device counted as that part."""
        return self.gpus * self.sharing.share

    @property
    def devices(self) -> tuple[tuple[NodeId, tuple[int, ...]], ...]:
        """The devices that are held, without the host beside them."""
        return tuple((part.node, part.gpus) for part in self.slices)

    def stays(self, to: Allocation) -> bool:
        """True if a job that holds this goes on as it is under `to`: equal devices, equal plan."""
        return self.devices == to.devices and self.plan == to.plan

    def same_way(self, to: Allocation) -> bool:
        """True if the plans differ by no more than the number of replicas."""
        if self.plan is None or to.plan is None:
            return self.plan is to.plan
        return self.plan == to.plan or replace(self.plan, data=to.plan.data) == to.plan


class Config(NamedTuple):
    """A size to choose: that many GPUs of a kind on that many nodes."""

    kind: str
    nodes: int
    gpus: int


@frozen
class LinearQuantity:
    """A quantity that grows linearly; rewritten only when its rate changes."""

    base: float = 0.0
    rate: float = 0.0
    since: float = 0.0

    def at(self, now: float) -> float:
        """The reading at `now`."""
        return self.base + self.rate * (now - self.since)


def _check_nodes(demand: Demand) -> None:
    """Raise InvalidConfig for a number of nodes that its GPUs cannot be divided among."""
    gpus, nodes = demand.gpus, demand.nodes
    leave = "or leave nodes out"
    if not 0 < nodes <= MOST_GPUS:
        raise InvalidConfig(f"nodes: {nodes} cannot be asked for", hint=f"1 or more, {leave}")
    if not demand.rigid:
        raise InvalidConfig(
            f"nodes: {nodes} with {demand.min} to {demand.max} GPUs; a job on a given number of "
            "nodes has one size",
            hint=f"give one number of gpus, {leave}",
        )
    if nodes > 1 and gpus == 0:
        raise InvalidConfig(
            f"nodes: {nodes} without GPUs; a job without GPUs runs on one node",
            hint=f"ask for gpus, {leave}",
        )
    if demand.share < 1.0 and gpus > 1:
        raise InvalidConfig(
            f"nodes: {nodes} with {demand.share:g} of each GPU; only whole GPUs are divided among "
            "nodes",
            hint=f"ask for whole GPUs, {leave}",
        )
    if gpus % nodes:
        fewer = gpus - gpus % nodes
        sizes = f"{fewer} or {fewer + nodes}" if fewer else f"{nodes}"
        raise InvalidConfig(
            f"nodes: {say_gpus(gpus)} cannot be divided evenly among {nodes} nodes",
            hint=f"ask for {sizes} gpus, {leave}",
        )


def _check_plans(job: Job) -> None:
    """Raise InvalidConfig for execution plans that can never run at a size the job takes."""
    low, high = max(job.demand.min, 1), job.demand.max
    for plan in job.plans:
        fits = plan.unit * max(plan.data, -(-low // plan.unit))
        if not low <= fits <= high:
            raise InvalidConfig(
                f"job {job.id!r}: plan {plan.text!r} runs on a multiple of {say_gpus(plan.unit)}"
                if not plan.data
                else f"job {job.id!r}: plan {plan.text!r} runs on {say_gpus(fits)}",
                hint=f"it takes {low} to {high} GPUs; ask for other gpus, or leave the plan out",
            )
    if len({*job.plans}) < len(job.plans):
        raise InvalidConfig(f"job {job.id!r}: a plan is there twice", hint="name each once")


def _check(job: JobId, name: str, value: float, least: float, most: float) -> None:
    """Raise InvalidConfig for a number out of range, or for none at all (nan)."""
    if not least <= value <= most:
        raise InvalidConfig(
            f"job {job!r}: {name} is {value:g}", hint=f"{name} is from {least:g} to {most:g}"
        )


PriorityWord = Literal["guaranteed", "normal", "spot", "opportunistic"]
PRIORITIES: dict[PriorityWord, float] = {
    "guaranteed": 1.0,
    "normal": 0.0,
    "spot": -0.5,
    "opportunistic": LOWEST,
}


def priority_word(job: Job) -> PriorityWord:
    """The class of a job: that with the nearest number."""
    return min(PRIORITIES, key=lambda word: abs(PRIORITIES[word] - job.priority))
