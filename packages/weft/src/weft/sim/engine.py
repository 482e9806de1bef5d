"""The simulator's physics in scaled wall time, behind the engine protocol.

For demonstrations and load tests: no process is started, but everything above the engine is the
real thing. What it knows ends with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.engine_bases import NoLiveResize, NoMemoryWaits, NoSleep
from weft.core.events.event import Event, Failed, Finished, Reported, Started, Stopped
from weft.core.knowledge.measured import NOT_MEASURED, MeasuredAttempt, Sees
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Allocation, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import Controls, Wants
from weft.core.protocols import Coupling, DeviceSharing, EngineHealth, PerfModel
from weft.sim.physics import DEATH, REVIEW, Milestone, Neighbours, Physics

Attempt = tuple[JobId, int]
LONGEST_NAP_S = 3600.0
SUPPORTS = (
    Controls.SHARE
    | Controls.TIER
    | Controls.PHASE
    | Controls.BATCH
    | Controls.HOST
    | Controls.COUNT
    | Controls.SHIFT
    | Controls.PLAN
)


@dataclass(slots=True)
class _Run:
    """An attempt under way; `leaves` is when a stop that was asked for takes effect."""

    job: Job
    physics: Physics
    number: int
    leaves: float | None = None


@dataclass
class SimulatedEngine(NoLiveResize, NoMemoryWaits, NoSleep):
    """Jobs that only pass time, on any cluster.

    A job's hint `duration_s` says how long it takes on what it asked for (`default_s` without
    one), `fails_at_s` after how much of that its first attempt dies, `fails_times` how many do
    so one after the other. `speed` cluster seconds pass in a second. Jobs that share a device
    slow each other as in a simulation, `sharing` being how a device serves several: timeslicing
    or mps.
    """

    cluster: str = "2x4:a100"
    speed: float = 60.0
    default_s: float = 600.0
    checkpoint_s: float = 1.0
    tick_s: float = 60.0
    sharing: DeviceSharing = "timeslicing"
    perf: PerfModel = field(kw_only=True, metadata={"settable": False})
    coupling: Callable[[Cluster, DeviceSharing], Coupling] | None = field(
        default=None, kw_only=True, metadata={"settable": False}
    )
    seconds: Callable[[], float] = field(
        default=time.monotonic, kw_only=True, metadata={"settable": False}
    )

    wants = Wants.PHYSICS
    declares = (("", SUPPORTS),)
    invitation, job_objects, batch_works, node_checks, artifacts = "", None, None, None, None

    def __post_init__(self) -> None:
        self._cluster: Cluster = parse_cluster(self.cluster)
        self._jobs: dict[JobId, tuple[Physics, int]] = {}
        self._neighbours: Neighbours | None = None
        if self.coupling is not None:
            self._neighbours = Neighbours(self.coupling(self._cluster, self.sharing))
        self._numbered: dict[int, Attempt] = {}
        self._number = 0
        self._runs: dict[Attempt, _Run] = {}
        self._ended: dict[Attempt, Event] = {}
        self._due: list[tuple[float, int, Attempt, int]] = []
        self._awaited: dict[Attempt, int] = {}
        self._order = 0
        self._began = self.seconds()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._bell = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    # ---- what it is

    @property
    def supports(self) -> Controls:
        """The controls that its physics has an effect for."""
        return SUPPORTS

    @property
    def real(self) -> bool:
        return False

    @property
    def health(self) -> EngineHealth:
        """There is nothing that could be lost sight of."""
        return EngineHealth()

    async def nodes(self) -> Sequence[Node]:
        """The nodes of the cluster that was named."""
        return self._cluster.nodes

    def check(self, job: Job) -> None:
        """Any job will do."""

    def pids(self, job: JobId, attempt: int) -> Mapping[int, int]:  # noqa: ARG002 - nothing runs
        return {}

    @property
    def sees(self) -> Sees:
        """Return nothing: simulated jobs report what they would measure."""
        return Sees.NOTHING

    def measured(self, job: JobId, attempt: int) -> MeasuredAttempt:  # noqa: ARG002 - nothing is seen
        return NOT_MEASURED

    @property
    def sessions(self) -> None:
        """No session: a simulated job only passes time."""
        return None

    def logs(self, job: JobId, attempt: int) -> Mapping[int, Path]:  # noqa: ARG002 - nothing prints
        return {}

    # ---- life

    def running(self) -> set[Attempt]:
        return set(self._runs)

    async def forget(self, jobs: Collection[JobId]) -> None:
        gone = set(jobs)
        for attempt in [ended for ended in self._ended if ended[0] in gone]:
            del self._ended[attempt]
        for job in gone:
            self._jobs.pop(job, None)

    def stored_bytes(self, jobs: Collection[JobId]) -> Mapping[JobId, int]:
        return dict.fromkeys(jobs, 0)

    async def adopt(self, attempts: Collection[Attempt]) -> set[Attempt]:
        """Go on with these attempts; report their news again; forget all others."""
        self._queue = asyncio.Queue()
        self._bell = asyncio.Event()
        now = self._now()
        for attempt in [known for known in self._runs if known not in attempts]:
            run = self._runs.pop(attempt)
            del self._awaited[attempt]
            run.physics.end_run(now, 0)
        self._repace(now)
        known = set()
        for attempt in attempts:
            if attempt in self._runs or attempt in self._ended:
                known.add(attempt)
                self._queue.put_nowait(Started(*attempt))
            if attempt in self._ended:
                self._queue.put_nowait(self._ended[attempt])
        self._pump = asyncio.create_task(self._pass_time())
        return known

    async def close(self) -> None:
        """Let time stand still; `adopt` makes it go on."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._queue.get()

    # ---- requests

    async def start(self, job: Job, on: Allocation, attempt: int) -> None:
        """Begin a run at once."""
        key = (job.id, attempt)
        if key in self._runs or key in self._ended:
            return
        now = self._caught_up()
        if job.id not in self._jobs:
            self._number += 1
            self._jobs[job.id] = self._physics_of(job), self._number
        run = self._runs[key] = _Run(job, *self._jobs[job.id])
        self._numbered[run.number] = key
        self._queue.put_nowait(Started(*key))
        self._expect(key, run.physics.start(now, job, on, self._cluster.kind_of(on)))
        self._repace(now)

    async def stop(self, job: JobId, attempt: int, grace_s: float) -> None:
        """The run ends now, and the devices are empty once the checkpoint is written."""
        key = (job, attempt)
        run = self._runs.get(key)
        if run is None:
            self._queue.put_nowait(self._ended.get(key, Stopped(*key)))
            return
        if run.leaves is None:
            now = self._caught_up()
            if key not in self._runs:
                return  # it came to its end just now, and that is reported
            run.physics.end_run(now, 0)
            run.leaves = now + min(self.checkpoint_s, grace_s)
            self._expect(key, Milestone(run.leaves, REVIEW))
            self._repace(now)

    async def adjust(self, job: JobId, attempt: int, to: Allocation) -> None:
        """Let the job run on at the speed of its new terms."""
        now = self._caught_up()
        run = self._runs.get((job, attempt))
        if run is not None and run.leaves is None:
            kind = self._cluster.kind_of(to)
            self._expect((job, attempt), run.physics.adjust(now, 0, to, kind))
            self._repace(now)

    # ---- time

    def _physics_of(self, job: Job) -> Physics:
        times = int(job.hints.get("fails_times", 1.0)) if "fails_at_s" in job.hints else 0
        fails = tuple((i + 1) * job.hints["fails_at_s"] for i in range(times))
        truth = Truth(job.hints.get("duration_s", self.default_s), fails)
        return Physics(
            Trace(job.id, ((job, truth),)),
            self.perf,
            tick_s=self.tick_s,
            neighbours=self._neighbours,
            first=self._number,
        )

    def _now(self) -> float:
        return (self.seconds() - self._began) * self.speed

    def _caught_up(self) -> float:
        """Now, with everything behind that was due before: neighbours change in order of time."""
        now = self._now()
        self._catch_up(now)
        return now

    def _repace(self, now: float) -> None:
        """Let each job go on at the speed that its neighbours leave it."""
        if self._neighbours is None:
            return
        for number, speed in self._neighbours.changed():
            key = self._numbered[number]
            self._expect(key, self._runs[key].physics.set_pace_part(now, 0, speed))

    def _expect(self, key: Attempt, next_up: Milestone) -> None:
        """Await the next milestone of a run; whatever was awaited of it before is void."""
        self._order += 1
        self._awaited[key] = self._order
        heapq.heappush(self._due, (next_up.at, self._order, key, next_up.what))
        self._bell.set()
        if next_up.report is not None:
            self._queue.put_nowait(Reported(*key, next_up.report))

    async def _pass_time(self) -> None:
        while True:
            self._bell.clear()
            self._catch_up(self._now())
            nap = LONGEST_NAP_S
            if self._due:
                nap = min(max((self._due[0][0] - self._now()) / self.speed, 0.0), nap)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(nap):
                    await self._bell.wait()

    def _catch_up(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            at, order, key, what = heapq.heappop(self._due)
            if key in self._runs and self._awaited[key] == order:
                self._reach(at, key, what)

    def _reach(self, at: float, key: Attempt, what: int) -> None:
        run = self._runs[key]
        if run.leaves is not None:
            self._end(key, Stopped(*key))
        elif what == REVIEW:
            self._expect(key, run.physics.update_progress(at, 0))
        elif what == DEATH:
            run.physics.fail_run(at, 0)
            self._end(key, Failed(*key, reason="failed, as its trace says"))
        else:
            run.physics.finish(at, 0)
            del self._jobs[key[0]], self._numbered[run.number]
            self._end(key, Finished(*key))
        self._repace(at)

    def _end(self, key: Attempt, event: Event) -> None:
        del self._runs[key], self._awaited[key]
        self._ended[key] = event
        self._queue.put_nowait(event)
