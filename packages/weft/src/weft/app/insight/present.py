"""The live scheduler's state as a value: to try decisions on, and to simulate from."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.never_starts import why_never
from weft.app.simulate.wiring import wire_from
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Job, JobId, Stage
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.protocols import PerfModel
from weft.core.scheduler import Scheduler
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import JobTable
from weft.frozen import frozen
from weft.perf.believed import Believed
from weft.perf.replay import Replay
from weft.runtime.records.start_scores import AS_SIMULATED, RangeCorrection
from weft.sim.fork import Fork
from weft.sim.result import TimelineBar
from weft.stack.windows import ReservedWindow, take_away

SIMULATIONS = 12
OUTLOOKS = 6
DECISIONS = 6_000  # of all simulations together
WORK = 2_000_000  # decisions times jobs, likewise: what a decision costs grows with them
ASKED = (  # the columns that say what a job asks for
    TableColumns.GPUS,
    TableColumns.MIN,
    TableColumns.MAX,
    TableColumns.NEED,
    TableColumns.PRIORITY,
    TableColumns.TIER,
    TableColumns.PREEMPTIBLE,
)
HOPELESS = 2
TINY_S = 1e-6
SPREAD = 0.5  # sigma of the log-normal error where nothing is predicted
SHORTEST_S = 60.0
HISTORY_KEPT = 2_000
MIDDLE = 0.5
ENDS = 2  # jobs that ended, from which lengths of others can be drawn
BOUNDLESS = CpuBudget()
STEP = 0.005  # of the whole, between two words of how far it is


@frozen
class Estimate:
    """Seconds until a start in each simulation; None where it was not reached.

    `counted`: GPUs were only counted, as nothing could be simulated in the time there was.
    `unknown` says why nothing can be said; empty otherwise.
    """

    after: tuple[float | None, ...]
    counted: bool = False
    unknown: str = ""
    correction: RangeCorrection = AS_SIMULATED

    def quantile(self, q: float) -> float | None:
        """The wait that a start stays within with a chance of `q`; None: not reached.

        Rounded away from the middle: few simulations are no surer than they can be. `correction`
        corrects it where earlier ranges did not hold.
        """
        order = sorted(math.inf if seconds is None else seconds for seconds in self.after)
        middle, place = order[len(order) // 2], q * (len(order) + 1)
        side = (q > MIDDLE) - (q < MIDDLE)
        number = math.ceil(place) if side > 0 else math.floor(place)
        value = order[min(max(number, 1), len(order)) - 1] if side else middle
        if not math.isfinite(value):
            return None
        return self.correction.correct(middle, value, side) if math.isfinite(middle) else value


@frozen
class StartOutlook:
    """Start and end of a job, in seconds from now; 0 for one that runs."""

    start: Estimate
    end: Estimate


@frozen
class QueueOutlook:
    """The queue ahead: start and end of jobs, and the job on each GPU by time in one simulation.

    `never` says why jobs never start.
    """

    outlook: dict[JobId, StartOutlook]
    timeline: Sequence[TimelineBar] = ()
    never: Mapping[JobId, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Present:
    """Everything a decision follows from, copied: nothing that happens later changes it."""

    now: float
    table: JobTable
    cluster: Cluster
    policy: Policy
    knowledge: Knowledge
    memory: object
    finished: tuple[float, ...]
    submissions: int
    windows: Sequence[ReservedWindow] = ()
    correction: RangeCorrection = AS_SIMULATED

    @classmethod
    def of(
        cls,
        scheduler: Scheduler,
        now: float,
        windows: Sequence[ReservedWindow] = (),
        correction: RangeCorrection = AS_SIMULATED,
    ) -> Present:
        """A copy of the scheduler's state; quick, from the thread that owns it."""
        state = scheduler.state
        return cls(
            now,
            _whole(state.table),
            state.cluster,
            scheduler.policy,
            copy.deepcopy(scheduler.knowledge),
            scheduler.memory,
            tuple(end.ran for end in state.ended[-HISTORY_KEPT:] if end.finished),
            state.submissions,
            windows,
            correction,
        )

    def with_job(self, job: Job) -> Present:
        """The present with one more job waiting, or with a waiting one changed."""
        table = _whole(self.table)
        if job.id in table:
            row = table.row(job.id)
            seq = int(table.seq[row])
            fresh = JobTable()
            fresh.add(job, seq)
            for which in ASKED:
                table.set(row, which, fresh.get(0, which))
            table.jobs[row] = job
        else:
            row = table.add(job, self.submissions)
            table.set(row, TableColumns.RAN_SINCE, self.now)
            table.set(row, TableColumns.SERVICE_SINCE, self.now)
        return replace(self, table=table)

    def with_node(self, node: Node) -> Present:
        """The present where a node is as described."""
        order = {known.id: i for i, known in enumerate(self.cluster.nodes)}
        return replace(self, cluster=self.cluster.having(node, order))

    def released(self, job: JobId) -> Present:
        """The present after a running job gave its devices back and waits again."""
        table = _whole(self.table)
        row = table.row(job)
        if table.allocations[row] is None:
            return self
        table.meters_off(row, self.now)
        table.allocations[row] = None
        table.set(row, TableColumns.HELD, 0.0)
        table.set(row, TableColumns.STAGE, Stage.PENDING)
        return replace(self, table=table)

    def free(self) -> Capacity:
        """Capacity that is not promised to a job."""
        free = Capacity(self.cluster)
        for on in self.table.allocations:
            if on is not None:
                free.take(on)
        free.commit()
        return free

    def free_for(self, job: Job) -> Capacity:
        """The free capacity that this job may use: not what is kept for others, or held by them."""
        free = self.free()
        take_away(free, [window for window in self.windows if not window.admits(job, self.now)])
        return free

    def decide(self, asked: Collection[JobId] = ()) -> Plan:
        """The decision of the policy now, with reasons for the jobs that are `asked` about."""
        view = View(
            self.now,
            _whole(self.table),
            self.cluster,
            self.free(),
            self.knowledge,
            self.memory,
            np.array(self.finished),
            asked=frozenset(asked),
        )
        return self.policy.decide(view)

    def starts(self, job: Job) -> bool:
        """True if the job, changed or new, would start at once and preempt no protected job."""
        return self.with_job(job).decide().changes.get(job.id) is not None

    def unknown_lengths(self, besides: JobId) -> list[Job]:
        """Return other jobs whose length nothing says: no estimate, no limit, no job that ended."""
        if len(self.finished) >= ENDS:
            return []
        left_out = {besides, *self.table.suspended}
        others = (other for other in self.table.jobs if other.id not in left_out)
        return [other for other in others if not self._knows_length(other)]

    def unknown_start(self, job: JobId | None = None) -> str:
        """Return why no start, or not that of a job, can be simulated; empty where one can."""
        if not (unknown := self.unknown_lengths(job or JobId(""))):
            return ""
        other = "other " if job else ""
        count = f"{len(unknown)} {other}jobs" if len(unknown) > 1 else f"a{other and 'nother'} job"
        return f"nothing says how long {count} will take, and too few have ended to go by"

    def _knows_length(self, job: Job) -> bool:
        limited = job.launch is not None and job.launch.time_limit_s > 0.0
        predictor = self.knowledge.predictor
        if limited or "duration_s" in job.hints or predictor is None:
            return limited or "duration_s" in job.hints
        table = JobTable()
        table.add(job, 0)
        exact = bool(np.isfinite(predictor.known_lengths(table, self.now)[0]))
        return exact or predictor.basis(job).effective >= ENDS

    def without_behind(self, job: JobId, ahead: Collection[JobId]) -> Present:
        """The present without waiting jobs behind `job`: those `ahead` and running ones stay."""
        stay = {job, *ahead}
        keep = np.array(
            [
                on is not None or other.id in stay or other.id in self.table.suspended
                for other, on in zip(self.table.jobs, self.table.allocations, strict=True)
            ],
            dtype=bool,
        )
        return replace(self, table=self.table.pick(keep))

    def estimate(
        self,
        job: JobId,
        simulations: int = SIMULATIONS,
        decisions: int | None = None,
        budget: CpuBudget = BOUNDLESS,
    ) -> Estimate:
        """The start of a waiting job, in that many simulations with other remaining times each.

        `decisions` bounds all of them together; by default fewer where there are many jobs. If
        the first simulations do not come to the start within their part, nor will the others. What
        `budget` does not pay for is not simulated.
        """
        total = decisions or self._affordable()
        after: list[float | None] = []
        for seed in range(simulations):
            if (seed >= HOPELESS and not any(after)) or budget.empty:
                break
            at = self._fork(seed).until_started(
                job, max(total // simulations, 1), lambda: budget.empty
            )
            after.append(None if at is None else max(at - self.now, TINY_S))
        if not any(after):
            return Estimate((None,) * simulations)
        return Estimate(tuple(after), correction=self.correction)

    def _fork(self, seed: int) -> Fork:
        return wire_from(
            self.table,
            self.now,
            self.remaining(seed).tolist(),
            self._perf(),
            self.cluster,
            self.policy,
            self.knowledge,
            self.memory,
        )

    def _perf(self) -> PerfModel:
        beliefs = self.knowledge.beliefs
        if beliefs is None:
            return Replay()
        held = zip(self.table.jobs, self.table.allocations, strict=True)
        kinds = {job.id: self.cluster.kind_of(on) for job, on in held if on is not None}
        return Believed(beliefs, kinds)

    def look_ahead(
        self,
        simulations: int = OUTLOOKS,
        progress: Callable[[float], None] | None = None,
        budget: CpuBudget = BOUNDLESS,
        decisions: int | None = None,
    ) -> QueueOutlook:
        """The outlook with the job on each GPU at each time, in the first of the simulations.

        `decisions` bounds each of them; by default fewer where there are many jobs. The first may
        take half of `budget` and ends early then; of the others only those count that it pays for.
        """
        each = decisions or max(self._affordable() // simulations, 1)
        starts: dict[JobId, list[float | None]] = {job.id: [] for job in self.table.jobs}
        ends: dict[JobId, list[float | None]] = {job.id: [] for job in self.table.jobs}
        timeline: Sequence[TimelineBar] = ()
        never: dict[JobId, str] = {}
        for seed in range(simulations):
            fork, ration = self._fork(seed), budget.share_of_rest(1.0 if seed else 0.5)
            times = fork.to_the_end(each, _tell(ration, seed, simulations, progress))
            if seed and ration.empty:
                break
            for job, (start, end) in times.items():
                starts[job].append(None if start is None else max(start - self.now, 0.0))
                ends[job].append(None if end is None else max(end - self.now, 0.0))
            if not seed:
                timeline = fork.timeline
                never = why_never(fork.scheduler) if fork.stuck else {}
        if progress is not None:
            progress(1.0)
        outlook = {
            job.id: StartOutlook(
                Estimate(tuple(starts[job.id]), correction=self.correction),
                Estimate(tuple(ends[job.id])),
            )
            for job in self.table.jobs
        }
        return QueueOutlook(outlook, timeline, never)

    def _affordable(self) -> int:
        """Decisions of all simulations together, where nothing else bounds them."""
        return min(DECISIONS, WORK // max(len(self.table), 1))

    def remaining(self, seed: int) -> Floats:
        """Seconds that each job may still take: one draw.

        From the predicted distribution; where nothing is predicted, as long as finished jobs that
        got this far went on; before any has, about as long again as it has run.
        """
        rng = np.random.default_rng(seed)
        table = self.table
        drawn: Floats = np.full(len(table), np.inf)
        if self.knowledge.predictor is not None and len(table):
            drawn = self.knowledge.predictor.draw(table, self.now, rng)
        ran = table.ran(self.now)
        longer: dict[float, tuple[float, ...]] = {}
        for row in map(int, np.flatnonzero(~np.isfinite(drawn))):
            noise = float(np.exp(SPREAD * rng.standard_normal()))
            so_far = float(ran[row])
            if so_far not in longer:
                longer[so_far] = tuple(length for length in self.finished if length > so_far)
            drawn[row] = _went_on(so_far, longer[so_far], rng) * noise
        return np.maximum(drawn, 1.0)


def _tell(
    budget: CpuBudget, before: int, simulations: int, progress: Callable[[float], None] | None
) -> Callable[[], bool]:
    """True if a simulation has spent its budget; tells the part done, by what it has spent."""
    reported = before / simulations

    def spent() -> bool:
        nonlocal reported
        part = (before + budget.spent) / simulations
        if progress is not None and part >= reported + STEP:
            reported = part
            progress(part)
        return budget.empty

    return spent


def _went_on(ran: float, longer: Sequence[float], rng: np.random.Generator) -> float:
    if longer:
        return float(longer[int(rng.integers(len(longer)))]) - ran
    return max(ran, SHORTEST_S)


def _whole(table: JobTable) -> JobTable:
    return table.pick(np.ones(len(table), dtype=bool))
