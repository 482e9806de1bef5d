"""The truth about jobs: progress, ends, deaths. Nothing here is visible to a policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, MutableSequence, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.core.events.report import Report
from weft.core.model.job import Allocation, Discipline, Job, JobId, NodeId
from weft.core.model.trace import Trace
from weft.core.protocols import Coupling, PerfModel, Places, Resident, SimulatedJob
from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.native import compiled
from weft.sim.milestones import LossMilestones
from weft.sim.switches import SimulatedResizes, Suspension


class Neighbours:
    """The jobs on every device, by submission number.

    `places` are where else jobs meet, such as network links; None: nowhere.
    """

    def __init__(self, coupling: Coupling, places: Places | None = None) -> None:
        self._coupling = coupling
        self._places = places
        self._residents: dict[int, Resident] = {}
        self._on: dict[Hashable, list[int]] = {}
        self._speed: dict[int, float] = {}
        self._stale: dict[int, None] = {}
        self._fresh: set[int] = set()

    def enter(self, seq: int, resident: Resident, speed: float | None = None) -> None:
        """A job comes to live on its devices, at `speed` for now; None where it just starts."""
        self._residents[seq] = resident
        if speed is None:
            self._fresh.add(seq)
        self._speed[seq] = 1.0 if speed is None else speed
        for device in self._where(resident):
            here = self._on.setdefault(device, [])
            self._stale.update(dict.fromkeys(here))
            here.append(seq)
        self._stale[seq] = None

    def leave(self, seq: int) -> None:
        for device in self._where(self._residents.pop(seq)):
            here = self._on[device]
            here.remove(seq)
            self._stale.update(dict.fromkeys(here))
        self._stale.pop(seq, None)
        self._fresh.discard(seq)
        del self._speed[seq]

    def residents_beside(self, seq: int) -> Sequence[Resident]:
        """The jobs that share a device, or another place, with a job, in order of arrival."""
        others: dict[int, None] = {}
        for device in self._where(self._residents[seq]):
            others.update(dict.fromkeys(self._on[device]))
        others.pop(seq, None)  # one without devices has no neighbours, not even itself
        return [self._residents[other] for other in others]

    def changed(self) -> Iterator[tuple[int, float]]:
        """Jobs whose speed is not what it was, or that have just met neighbours; and the speed."""
        stale, self._stale = self._stale, {}
        fresh, self._fresh = self._fresh, set()
        for seq in stale:
            beside = self.residents_beside(seq)
            resident = self._residents[seq]
            speed = self._coupling.speed(resident, beside) if resident.on.gpus else 1.0
            if speed != self._speed[seq] or (seq in fresh and beside):
                yield seq, speed
            self._speed[seq] = speed

    def _where(self, resident: Resident) -> Iterator[Hashable]:
        return _devices(resident) if self._places is None else self._all_places(resident)

    def _all_places(self, resident: Resident) -> Iterator[Hashable]:
        assert self._places is not None
        yield from _devices(resident)
        yield from self._places(resident)


def _devices(resident: Resident) -> Iterator[Hashable]:
    for part in resident.on.slices:
        for gpu in part.gpus:
            yield part.node, gpu


NEVER = np.inf
Interruption = Callable[[Job, Sequence[Job]], float]

END, DEATH, REVIEW = range(3)


class StartSeconds(Protocol):
    """Seconds without progress at the beginning of a run of a job."""

    def __call__(self, job: Job, *, first: bool) -> float: ...


class Milestone(NamedTuple):
    """The next point of a run, its time, and what it reports now."""

    at: float
    what: int
    report: Report | None = None


def _single(numbers: NDArray[Any]) -> MutableSequence[Any]:
    """Numbers for those who read and write one at a time: half of what numpy takes."""
    return memoryview(numbers)  # type: ignore[arg-type,return-value]


@compiled
def work_left(
    seq: Floats, now: float, since: Floats, base: Floats, rate: Floats, length: Floats, left: Floats
) -> None:
    """Write into `left` what each job still has to do, of meters by submission number."""
    i = seq.astype(np.intp)
    # A job that is still restarting makes no progress until `since`.
    ran = np.maximum(now - since.take(i), 0.0)
    done = base.take(i) + rate.take(i) * ran
    np.maximum(length.take(i) - done, 0.0, out=left)


@frozen
class RunSegment:
    """One stretch of a job on one allocation, for timelines and accounts."""

    seq: int
    start: float
    end: float
    on: Allocation


@frozen
class ChangeTerms:
    """The cost of changes to jobs, where that is not as `perf` has it.

    `interruption` is what every decision costs every running job, for simulators that count so.
    `resume_s` is what a suspended job pays to go on where it ran last. `saves_every` is how long a
    job must run until it is saved, where a stop itself saves nothing. `resize_s` is what a change
    of size costs a job that keeps some of its devices, where that is no restart. `start_s` says
    what starts take where `perf` does not.
    """

    interruption: Interruption | None = None
    resume_s: float | None = None
    saves_every: float | None = None
    resize_s: float | None = None
    start_s: StartSeconds | None = None


NO_TERMS = ChangeTerms()


class Physics:
    """True progress of every job of a trace, as linear meters by submission number.

    `checkpoint_s` is how long a stop takes; `checkpoint_every` is how much progress a job can lose
    when its node dies; `tick_s` is how often adaptive jobs look at themselves. `coupling` says how
    neighbours on a device slow each other, and on other `places` where there are any; without it a
    claim gives that part of the speed.
    `neighbours` is the same for physics that share devices with others, where the first job has the
    number `first` and their creator calls `repace`. `terms` are what changes cost beside that.
    """

    def __init__(
        self,
        trace: Trace,
        perf: PerfModel,
        *,
        checkpoint_s: float = 0.0,
        checkpoint_every: float = 1800.0,
        tick_s: float = 60.0,
        free_moves: bool = False,
        coupling: Coupling | None = None,
        places: Places | None = None,
        neighbours: Neighbours | None = None,
        first: int = 0,
        terms: ChangeTerms = NO_TERMS,
    ) -> None:
        self.trace = trace
        self._start_s = terms.start_s or perf.restart
        self.checkpoint_s = checkpoint_s
        self.seq_of: dict[JobId, int] = {job.id: i for i, (job, _) in enumerate(trace)}
        n = len(trace)
        self.length: Floats = np.array([truth.length for _, truth in trace], dtype=float)
        self.starts = np.zeros(n, dtype=np.int64)
        self._trained = bytearray(n)
        self.first_start = np.full(n, np.nan)
        self.ended_at = np.full(n, np.nan)
        self.gpu_s = np.zeros(n)
        self.ran_s = np.zeros(n)
        self.lost_s = np.zeros(n)
        self._length, self._starts = _single(self.length), _single(self.starts)
        self._gpu_s, self._ran_s = _single(self.gpu_s), _single(self.ran_s)
        self._first_start, self._ended_at = _single(self.first_start), _single(self.ended_at)
        self.runs: list[RunSegment] = []
        self._perf = perf
        self._every = checkpoint_every
        self._tick_s = tick_s
        self._free_moves = free_moves
        self._last: dict[int, tuple[float, tuple[object, ...], float]] = {}
        self._simulated: dict[int, SimulatedJob] = {}
        self._meters = np.zeros(n), np.zeros(n), np.zeros(n)
        self._since, self._base, self._rate = map(_single, self._meters)
        self._died: dict[int, int] = {}
        self._on: dict[int, tuple[float, float, Allocation]] = {}
        self._neighbours = neighbours if coupling is None else Neighbours(coupling, places)
        self.coupled = self._neighbours is not None  # whether jobs may slow each other
        self._first = first
        self._speed = _single(np.ones(n))
        self.marks = LossMilestones(trace)
        self.interruption = terms.interruption
        self._saves_every = terms.saves_every
        self._suspension = None if terms.resume_s is None else Suspension(terms.resume_s)
        self._resizing = (
            None if terms.resize_s is None else SimulatedResizes(terms.resize_s, checkpoint_s)
        )
        self._beside: dict[int, tuple[float, int]] = {}
        self.resized = np.zeros(n, dtype=np.int64)

    def remaining(self, seq: Floats, now: float) -> Floats:
        """True seconds of work left, at the speed of the allocation asked for."""
        left = np.empty(len(seq))
        work_left(seq, now, *self._meters, self.length, left)
        return left

    def lengths(self, seq: Floats, now: float) -> Floats:  # noqa: ARG002 - same shape as remaining
        """True length of each job."""
        return self.length[seq.astype(np.intp)]

    def start(self, now: float, job: Job, on: Allocation, kind: str) -> Milestone:
        """Begin a run; return what will happen next of itself."""
        seq = self.seq_of[job.id]
        first = not self._starts[seq]
        if first:
            self._first_start[seq] = now
            self._simulated[seq] = self._perf.simulate_job(job, self.trace.jobs[seq][1])
        shape = (kind, *sorted(len(part.gpus) for part in on.slices)) if self._free_moves else ()
        if self._free_moves and self._last.get(seq, (None,))[:2] == (now, shape):
            begins = max(now, self._last[seq][2])
        elif self._resizing is not None and self._resizing.goes_on(seq, now, on):
            self._simulated[seq].begin(on, kind)
            begins = max(now + self._resizing.resize_s, self._since[seq])
        else:
            self._starts[seq] += 1
            self._simulated[seq].begin(on, kind)
            cost = self._start_s(job, first=not self._trained[seq])
            if self._suspension is not None:
                cost = self._suspension.resume_cost_s(seq, on, cost)
            begins = now + cost
        if self._free_moves:
            self._last[seq] = (now, shape, begins)
        return self._run_from(now, begins, job, on, kind)

    def wake(self, now: float, job: Job, on: Allocation, kind: str, wake_s: float) -> Milestone:
        """A run that slept goes on where it was, after `wake_s`."""
        self._simulated[self.seq_of[job.id]].begin(on, kind)
        return self._run_from(now, now + wake_s, job, on, kind)

    def _run_from(
        self, now: float, begins: float, job: Job, on: Allocation, kind: str
    ) -> Milestone:
        seq = self.seq_of[job.id]
        self._rate[seq], self._since[seq] = 0.0, begins
        self._on[seq] = (now, self._base[seq], on)
        if self._neighbours is None:
            self._speed[seq] = min(on.sharing.share / job.demand.share, 1.0)
        else:
            self._speed[seq] = 1.0
            self._neighbours.enter(self._first + seq, Resident(job, on, kind))
        if self._perf.steady:
            return self.update_progress(begins, seq)
        return Milestone(begins, REVIEW)

    def adjust(self, now: float, seq: int, on: Allocation, kind: str) -> Milestone:
        """A running job goes on where it is, under other terms."""
        self._change_terms(now, seq, on, kind)
        return self._onward(now, seq)

    def _change_terms(self, now: float, seq: int, on: Allocation, kind: str) -> None:
        self._account(now, seq)
        self._on[seq] = (now, self._on[seq][1], on)
        self._settle(now, seq)
        self._simulated[seq].begin(on, kind)
        job = self.trace.jobs[seq][0]
        if self._neighbours is None:
            self._speed[seq] = min(on.sharing.share / job.demand.share, 1.0)
        else:
            self._neighbours.leave(self._first + seq)
            resident = Resident(job, on, kind)
            self._neighbours.enter(self._first + seq, resident, self._speed[seq])

    def prepare(self, now: float, seq: int, more: int) -> None:
        """A running job holds `more` devices beside its own, on which it gets ready."""
        self._count_beside(now, seq)
        self._beside[seq] = (now, more)

    def move_job(
        self, now: float, seq: int, on: Allocation, kind: str, pause_s: float
    ) -> Milestone:
        """A running job goes on elsewhere after a pause."""
        self._count_beside(now, seq)
        self.resized[seq] += 1
        self._change_terms(now, seq, on, kind)
        self._rate[seq], self._since[seq] = 0.0, now + pause_s
        return self._onward(now, seq)

    def holds(self, seq: int) -> Allocation:
        """The place where a job runs."""
        return self._on[seq][2]

    def trains_at(self, seq: int) -> float:
        """From when on a job that was started makes progress."""
        return float(self._since[seq])

    def _count_beside(self, now: float, seq: int) -> None:
        since, more = self._beside.pop(seq, (now, 0))
        if more:
            self._gpu_s[seq] += (now - since) * more * self._on[seq][2].sharing.share

    def changed_milestones(self, now: float) -> list[tuple[int, Milestone]]:
        """Next milestones of jobs that changed since their neighbours did."""
        if self._neighbours is None:
            return []
        return [
            (seq, self.set_pace_part(now, seq, speed))
            for seq, speed in self._neighbours.changed()
            if seq in self._on
        ]

    def interrupt(self, now: float) -> None:
        """A decision is due: it costs every running job a pause just before it."""
        assert self.interruption is not None
        for seq in self._on:
            job = self.trace.jobs[seq][0]
            at = self._first + seq
            beside = self._neighbours.residents_beside(at) if self._neighbours is not None else ()
            turns = [r.job for r in beside if r.on.sharing.discipline is not Discipline.PACED]
            pause = self.interruption(job, turns)
            self._base[seq] += self._rate[seq] * max(now - self._since[seq] - pause, 0.0)
            self._since[seq] = now

    def running(self) -> list[int]:
        return list(self._on)

    def set_pace_part(self, now: float, seq: int, speed: float) -> Milestone:
        """A job goes on at a part of its speed alone, for its neighbours have changed."""
        self._settle(now, seq)
        self._speed[seq] = speed
        following = self._onward(now, seq)
        last = following.report
        report = Report(pace=speed) if last is None else replace(last, pace=speed)
        return following._replace(report=report)

    def _onward(self, now: float, seq: int) -> Milestone:
        """The next milestone of a run whose terms changed; a restart still takes its time."""
        since = self._since[seq]
        if now < since and not self._perf.steady:
            return Milestone(since, REVIEW)
        return self.update_progress(max(now, since), seq)

    def _settle(self, now: float, seq: int) -> None:
        """Book the progress made so far."""
        since, before, rate = self._since[seq], self._base[seq], self._rate[seq]
        gained = now - since if now > since else 0.0
        self._base[seq] = done = before + rate * gained
        if seq in self.marks.ahead:
            self.marks.record_progress(seq, now, before, done, rate)
        self._since[seq] = since + gained

    def _account(self, now: float, seq: int) -> None:
        """Close a stretch of a run on unchanged terms."""
        began, _, on = self._on[seq]
        ran = now - began
        self._gpu_s[seq] += ran * on.gpus * on.sharing.share
        self._ran_s[seq] += ran
        self.runs.append(RunSegment(seq, began, now, on))

    def update_progress(self, now: float, seq: int) -> Milestone:
        """Settle progress so far and take up the pace from here."""
        self._trained[seq] = True
        self._settle(now, seq)
        base, goal, fatal = self._base[seq], self._length[seq], False
        speed, seconds, report = self._simulated[seq].pace(base, self._tick_s - now % self._tick_s)
        rate = speed * self._speed[seq]
        self._rate[seq], self._since[seq] = rate, now
        if failures := self.trace.jobs[seq][1].failures:
            died = self._died.get(seq, 0)
            fatal = died < len(failures) and failures[died] < goal
            goal = max(failures[died], base) if fatal else goal
        left = (goal - base) / rate if rate > 0.0 else NEVER
        if left <= seconds * (1.0 + 1e-9):
            return Milestone(now + left, DEATH if fatal else END, report)
        return Milestone(now + seconds, REVIEW, report)

    def end_run(self, now: float, seq: int, *, crashed: bool = False) -> None:
        """A run is over: settle progress; a crash loses what was not checkpointed."""
        if seq not in self._on:
            return
        if self._beside:
            self._count_beside(now, seq)
        self._account(now, seq)
        _, base, _ = self._on.pop(seq)
        if self._free_moves:
            self._last[seq] = (now, *self._last[seq][1:])
        self._settle(now, seq)
        self._rate[seq] = 0.0
        if self._neighbours is not None:
            self._neighbours.leave(self._first + seq)
        if crashed:
            done = self._base[seq]
            kept = base + (done - base) // self._every * self._every if self._every else done
            self._base[seq] = kept
            self.lost_s[seq] += done - kept
            if self._suspension is not None:
                self._suspension.forget_memory(seq)

    def stop(self, now: float, seq: int) -> None:
        """A run is stopped: what was not saved is lost, where stops save nothing."""
        if seq not in self._on:
            return
        began, base, _ = self._on[seq]
        rate = self._rate[seq]
        if self._resizing is not None:
            self._resizing.on_stop(seq, now, self._on[seq][2])
        self.end_run(now, seq)
        if self._saves_every is not None:
            since = now - began
            if since > self._saves_every - 1e-6:
                since = 0.0
            lost = min(rate * since, self._base[seq] - base)
            self._base[seq] -= lost
            self.lost_s[seq] += lost

    @property
    def resizes(self) -> int:
        """Stops that were changes of size, no restarts."""
        return 0 if self._resizing is None else self._resizing.count

    def running_on(self, node: NodeId) -> list[int]:
        """Jobs with a run that uses `node`."""
        return [
            seq
            for seq, (_, _, on) in self._on.items()
            if any(part.node == node for part in on.slices)
        ]

    def fail_run(self, now: float, seq: int) -> None:
        """The run reached its next point of failure."""
        self._died[seq] = self._died.get(seq, 0) + 1
        self.end_run(now, seq, crashed=True)

    def finish(self, now: float, seq: int) -> None:
        self.end_run(now, seq)
        self._ended_at[seq] = now
        del self._simulated[seq]
