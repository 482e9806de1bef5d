"""The protocols that parts plug into, side by side."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from weft.core.artifacts import ArtifactFiles
from weft.core.batch_work import BatchWorks
from weft.core.events.event import Event
from weft.core.events.report import Report
from weft.core.job_objects import JobObjects
from weft.core.knowledge.measured import MeasuredAttempt, Sees
from weft.core.latency import Latency
from weft.core.model.cluster import Node, OutOfUse
from weft.core.model.job import Allocation, Job, JobId, MemoryPlace, NodeId
from weft.core.model.topology import Uplink
from weft.core.model.trace import Truth
from weft.core.node_checks import NodeChecks
from weft.core.plan.about import Controls, Wants
from weft.core.state.ended_jobs import EndedJobs
from weft.core.stops import Rung
from weft.frozen import frozen

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

Way = Literal["terminal", "shell"] | int  # into an attempt; an int is a port


class Pace(NamedTuple):
    """The pace of a job, for how long before it must be asked again, and what it reports.

    `rate` is progress per second; 1 is the speed of the allocation the job asked for.
    """

    rate: float
    seconds: float = inf
    report: Report | None = None


class SimulatedJob(Protocol):
    """One job's own behaviour in a simulation: how it uses what it was given."""

    def begin(self, on: Allocation, kind: str) -> None: ...

    def pace(self, done: float, until_tick: float) -> Pace:
        """The pace from here, with `done` seconds of work behind and a round ending ahead."""
        ...


class PerfModel(Protocol):
    """The truth about speeds, for the simulator."""

    @property
    def steady(self) -> bool:
        """True if a job's pace never changes while it holds an allocation."""
        ...

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob: ...

    def restart(self, job: Job, *, first: bool) -> float:
        """Seconds without progress at the beginning of a run."""
        ...


class Resident(NamedTuple):
    """A job on its devices, as its neighbours meet it."""

    job: Job
    on: Allocation
    kind: str


class Coupling(Protocol):
    """The truth about jobs that share devices, for the simulator."""

    def speed(self, resident: Resident, beside: Sequence[Resident]) -> float:
        """Speed of `resident` beside others on its devices, as a part of its speed alone there."""
        ...


# Where a job meets others beside its devices: network links that it crosses, sockets.
Places = Callable[[Resident], Iterable[Hashable]]


class LinkSharing(Protocol):
    """The truth about jobs whose traffic crosses the same network links, for the simulator."""

    def gb_s(self, resident: Resident, crossing: Mapping[Uplink, Sequence[Resident]]) -> float:
        """GB/s that `resident` has between its nodes while others cross its links as well.

        `crossing` are the links that it crosses, with the others on each in the order they came.
        """
        ...


# How a device serves several jobs that take no turns: each process has all of it for a while, or
# kernels of several run at the same time.
DeviceSharing = Literal["timeslicing", "mps"]


@frozen
class DeviceHealth:
    """The health of one device: `fault` says why it should not be used, `notes` what else was seen.

    `aside` says that it is not used, `withdrawn` is a fault that it turned out not to have.
    `counters` are what its driver counts now: `sm` (0 to 1), `held_gb`, `power_w`, `temp_c` and
    `errors`, as far as it tells them.
    """

    gpu: int
    fault: str = ""
    notes: tuple[str, ...] = ()
    aside: bool = False
    withdrawn: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)


@frozen
class EngineHealth:
    """Contact of an engine with its jobs; `reason` says what is wrong where there is none.

    `out_of_use` are machines that their cluster gives no jobs, whether it is well or not; `up` are
    its others, also those whose return the scheduler has not read yet. `taken` are devices that
    jobs of others hold, as `weft.stack.windows` writes them, by node. `devices` are those of
    machines whose driver tells how they are. `closings` are times for which machines are announced
    to be kept for others, written in the same way, by what they are called; `pools` are machines
    that are for one tenant alone, by tenant.
    """

    ok: bool = True
    reason: str = ""
    out_of_use: tuple[OutOfUse, ...] = ()
    taken: Mapping[NodeId, str] = field(default_factory=dict)
    devices: Mapping[NodeId, tuple[DeviceHealth, ...]] = field(default_factory=dict)
    closings: Mapping[str, str] = field(default_factory=dict)
    pools: Mapping[str, str] = field(default_factory=dict)
    up: tuple[Node, ...] = ()


class Sessions(Protocol):
    """Access for people to attempts that run."""

    async def connect(
        self, job: JobId, attempt: int, to: Way
    ) -> tuple[StreamReader, StreamWriter] | None:
        """A connection to the attempt; None if it has no such thing now.

        Its terminal and a new shell beside its processes speak `weft.wire.terminal`; a port is one
        that its own processes listen on, on any of its nodes. OSError where it cannot be reached.
        """
        ...


class Engine(Protocol):
    """Turns actions into processes, and reports what happened to them.

    Calls return as soon as the request is accepted; the outcome arrives as an event. Every
    call is idempotent for the same `attempt`, so the service may repeat it after a crash. A
    start is answered by Started or StartFailed; then follow any Reported or Resized, and at last
    exactly one of Stopped (a stop was asked for), Finished or Failed. None of these arrives before
    the last process of the attempt is gone. Failed says whether it was `lost` without the job's
    own doing; whether it is tried again is for the driver to say.
    """

    @property
    def wants(self) -> Wants:
        """The objects that its class must be given to build one; read from the class."""

    @property
    def supports(self) -> Controls:
        """Exactly the allocation fields it honours. A policy that sets more is refused."""

    @property
    def real(self) -> bool:
        """True if jobs are processes that measure themselves; not where they are simulated."""

    @property
    def sharing(self) -> DeviceSharing:
        """The way in which one of its devices serves several jobs."""

    @property
    def health(self) -> EngineHealth:
        """Its contact with its jobs."""

    @property
    def speed(self) -> float:
        """Seconds of cluster time in a second of the wall clock; 1 unless simulated."""

    @property
    def invitation(self) -> str:
        """The command to run on another machine so that it joins; empty where none can.

        After `nodes`.
        """
        ...

    async def nodes(self) -> Sequence[Node]: ...

    def check(self, job: Job) -> None:
        """Raise InvalidConfig for a job that this engine can never run."""
        ...

    def running(self) -> set[tuple[JobId, int]]:
        """Attempts that may have processes; asked before `adopt`, which ends all but its own."""
        ...

    async def adopt(self, attempts: Collection[tuple[JobId, int]]) -> set[tuple[JobId, int]]:
        """Take up these attempts after a restart and end every other one; which are known.

        Called once, before anything else is asked. Events of known attempts are reported again from
        Started on, also if they were reported before the restart.
        """
        ...

    async def start(self, job: Job, on: Allocation, attempt: int) -> None:
        """Launch `job` on exactly `on`, from its last checkpoint if it has one."""
        ...

    async def stop(self, job: JobId, attempt: int, grace_s: float) -> None:
        """Ask `job` to checkpoint and leave; end it after `grace_s`. Unknown jobs are fine."""
        ...

    async def adjust(self, job: JobId, attempt: int, to: Allocation) -> None:
        """Tell a running attempt its new batch, share or phase, where it is."""
        ...

    async def resize(self, job: Job, to: Allocation, attempt: int, epoch: int) -> None:
        """Let a running attempt go on to the devices of `to` as it trains.

        Asked only of attempts that an engine with `Controls.RESIZE` said are Resizable; answered
        by Resized or ResizeFailed. Another one before that takes its place: only the last is
        answered. EngineError where it cannot be asked; then nothing has changed.
        """
        ...

    @property
    def stops(self) -> frozenset[Rung]:
        """Exactly the ways in which its attempts can be put to sleep and go on."""
        ...

    async def freeze(self, job: JobId, attempt: int, *, by: str) -> None:
        """Let no process of a started attempt run; what it holds on its devices it keeps.

        On return it is so; EngineError if it could not be done, and then they run. It stays so
        until every caller (`by`) that asked has called `thaw`. Again changes nothing.
        """
        ...

    async def suspend(self, job: JobId, attempt: int, *, by: str) -> float:
        """Freeze an attempt and move what it holds on its devices to host memory: the GB moved."""
        ...

    async def thaw(self, job: JobId, attempt: int, *, by: str) -> None:
        """Take back what was asked for `by` someone; an attempt that no one wants asleep runs.

        EngineError while it cannot, such as when its devices have no room: it is tried again.
        """
        ...

    async def order_memory(self, order: Mapping[JobId, MemoryPlace]) -> None:
        """Let jobs whose allocations wait have memory that becomes free in this order.

        The lowest numbers first, of equal ones the longest wait, last those without any.
        """
        ...

    def events(self) -> AsyncIterator[Event]:
        """Started, reported, exited and node events, in the order they happened."""
        ...

    async def forget(self, jobs: Collection[JobId]) -> None:
        """Remove all that is kept of these jobs, which have ended; unknown ones are fine."""
        ...

    def stored_bytes(self, jobs: Collection[JobId]) -> Mapping[JobId, int]:
        """Bytes kept of each job on disk; from any thread."""
        ...

    def logs(self, job: JobId, attempt: int) -> Mapping[int, Path]:
        """The log file of each rank of an attempt; empty for an unknown one."""
        ...

    @property
    def sees(self) -> Sees:
        """The measurements that it can take of jobs that report nothing."""
        ...

    def measured(self, job: JobId, attempt: int) -> MeasuredAttempt:
        """Measurements of an attempt in its last minutes; NOT_MEASURED of an unknown one.

        From any thread; fresh to about half a second.
        """
        ...

    def pids(self, job: JobId, attempt: int) -> Mapping[int, int]:
        """The process of each rank of an attempt that runs; empty for one that is not known."""
        ...

    @property
    def job_objects(self) -> JobObjects | None:
        """Jobs that people apply to its cluster; None where there are none."""
        ...

    @property
    def batch_works(self) -> BatchWorks | None:
        """Batch jobs that persons' own clients submit; None where none do."""
        ...

    @property
    def node_checks(self) -> NodeChecks | None:
        """Checks of GPUs by their nodes; None where there are no real ones."""
        ...

    @property
    def artifacts(self) -> ArtifactFiles | None:
        """Files that jobs leave; None where jobs are not real."""
        ...

    @property
    def sessions(self) -> Sessions | None:
        """Access to running attempts; None where that cannot be done."""
        ...

    async def close(self) -> None:
        """Let go of everything; what runs goes on running."""
        ...


class Store(Protocol):
    """An append-only log of events, and snapshots that spare reading all of it.

    A snapshot is a cache, and so is the table of ended jobs: the log alone is enough.
    """

    @property
    def ended(self) -> EndedJobs:
        """Jobs that have ended and left, as far as a ledger has put them there."""
        ...

    @property
    def appends(self) -> Latency:
        """Times that appends take."""
        ...

    def append(self, events: Sequence[tuple[float, Event]]) -> int:
        """Keep `(at, event)` pairs, all or none, durably; the last's number. UnreadableEvent."""
        ...

    def since(self, seq: int, limit: int | None = None) -> list[tuple[int, float, Event]]:
        """Events after number `seq`, oldest first, as `(seq, at, event)`; 0 is before all.

        A row that cannot be read is set aside and skipped. Empty only at the end.
        """
        ...

    def last_seq(self) -> int:
        """The number of the last event that was ever appended."""
        ...

    def set_aside(self, seq: int, why: str) -> None:
        """Take a row out of the log, and keep it with the reason."""
        ...

    def unreadable_rows(self) -> Mapping[int, str]:
        """Rows that are not in the log any more, by number, and why."""
        ...

    def about_job(
        self, job: JobId, limit: int, until: float | None = None, without: Collection[type] = ()
    ) -> list[tuple[int, float, Event]]:
        """The last events that name a job, which ended at `until`; from any thread.

        Events of the classes `without` are left out.
        """
        ...

    def save(self, seq: int, snapshot: bytes) -> None:
        """Keep a snapshot of everything up to `seq`; older ones may be dropped."""
        ...

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot and its number."""
        ...

    def keep_base(self, seq: int, at: float, base: bytes) -> None:
        """Keep a snapshot that the log can go on from, should it be cut there."""
        ...

    def list_bases(self) -> list[tuple[int, float]]:
        """Numbers and times of all bases, oldest first."""
        ...

    def latest_base(self) -> tuple[int, bytes] | None:
        """The base that the log goes on from; None while it has its beginning."""
        ...

    def compact(self, seq: int) -> None:
        """Cut the log: drop all events up to `seq`, of which there must be a base."""
        ...

    def renew_lease(self) -> None:
        """Say that its owner is well; Superseded once another owns it. From any thread."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...
