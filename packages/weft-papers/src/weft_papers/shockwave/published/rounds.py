"""The simulator of Shockwave's authors: whole steps in rounds of 120 s.

Their jobs do not follow the batch sizes of their own profiles. A job looks at its epoch at the end
of a round, and asks for another batch if it should have one; it gets it at the end of the next
round that it runs, and the epochs it has begun then count as done. Accordion leaves only critical
epochs alone, not the first part of all. A job that did not run in the round before loses 20 s of
120, unless it ends in that round; steps are whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from pathlib import Path

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Allocation, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.formulas.training.regimes import regimes_of
from weft.perf.linear import LinearBeliefs
from weft.perf.training.learner import Learner
from weft.traces.draw.batch_schedules import LARGEST, SAMPLES, is_critical
from weft.traces.formats.shockwave import MODES, Tables

ROUND_S, RESTART_S = 120.0, 20.0
ENDING_S = 115.0  # a job that needs less of a round is charged no restart
OVERTIME = 1.5  # of the nominal duration; then a job is taken for done
SMALLEST = {"LM": 5, "ResNet-18": 16, "ResNet-50": 16, "Transformer": 16, "Recommendation": 512}
MOST = {**LARGEST, "Transformer": 128}
STATIC, ACCORDION, GNS = (MODES[name] for name in ("static", "accordion", "gns"))


@dataclass(slots=True)
class Steps:
    """One job, counted in steps of its present batch."""

    tables: Tables
    model: str
    gpus: int
    mode: float
    first_batch: int
    batch: int
    total: int
    nominal_s: float
    free_start: bool
    run: int = 0
    wants: int = 0
    ran_s: float = 0.0

    @property
    def speed(self) -> float:
        return self.tables.steps_per_s[f"{self.model} (batch size {self.batch})", self.gpus]

    @property
    def left(self) -> int:
        """Steps still to run."""
        return max(self.total - self.run, 0)

    @property
    def epoch(self) -> int:
        """Whole epochs that are over, as Shockwave counts them."""
        return floor(self.run / self.steps_per_epoch(self.batch))

    def steps_per_epoch(self, batch: int) -> int:
        """The last step of an epoch may be a small one."""
        return ceil(SAMPLES[self.model] / batch)

    def end_round(self, *, restarted: bool) -> None:
        """A whole round was run: count its steps, take up the batch asked for, ask for the next."""
        steps = min(int(self.speed * ROUND_S), self.left)
        took = steps / self.speed
        if restarted and took > ENDING_S:
            steps = int(steps * (took - RESTART_S) / took)
        self.run += steps
        self.ran_s += took - (RESTART_S if restarted else 0.0)
        self._rescale()
        self._ask()

    def _rescale(self) -> None:
        """The new batch, with the number of epochs kept and those begun done."""
        new, old = self.wants, self.batch
        self.wants = 0
        if not new or new == old:
            return
        if (f"{self.model} (batch size {new})", self.gpus) not in self.tables.steps_per_s:
            return
        before, after = self.steps_per_epoch(old), self.steps_per_epoch(new)
        epochs = ceil(self.total / before)
        total = ceil(self.total * old / new)
        self.total = total if ceil(total / after) == epochs else after * epochs
        self.run = ceil(self.run / before) * after
        self.batch = new

    def _ask(self) -> None:
        epoch = ceil(self.run / self.steps_per_epoch(self.batch))
        if self.mode == ACCORDION and self.model in LARGEST:
            critical = _in_critical_regime(self.model, self.first_batch, epoch)
            largest = LARGEST[self.model]
            if self.first_batch == largest:
                return
            if self.batch == self.first_batch and not critical:
                self.wants = largest
            elif self.batch != self.first_batch and critical:
                self.wants = self.first_batch
        elif self.mode == GNS and self.batch < MOST[self.model]:
            if self.first_batch == LARGEST.get(self.model):
                return
            growth = self.tables.growth.get((self.model, self.first_batch, self.gpus), ())
            ahead = [size for first, size in growth if first <= epoch + 1]
            if ahead and min(ahead[-1], MOST[self.model]) > self.batch:
                self.wants = 2 * self.batch


def _in_critical_regime(model: str, batch: int, epoch: int) -> bool:
    """As in the profiles, but for the late epochs of the recommendation model."""
    return is_critical(model, batch, epoch) and not (model == "Recommendation" and epoch >= 60)


@dataclass(slots=True)
class RoundClock:
    """The round that ends now, as the simulator counts them."""

    round: int = 0


class RoundByRound:
    """A job that runs whole rounds, from the moment it is started."""

    def __init__(self, steps: Steps, length: float, clock: RoundClock) -> None:
        self.steps = steps
        self.speeds: list[tuple[int, float]] = []  # round, samples a second
        self._length, self._clock = length, clock
        self._in_round = self._restarted = False
        self._first = True

    def begin(self, on: Allocation, kind: str) -> None:  # noqa: ARG002 - one kind
        """Whatever was under way is void: nobody is stopped inside a round."""
        self._in_round = False
        self._restarted = not (self._first and self.steps.free_start)
        self._first = False

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002 - it has its own rounds
        """Close the round that is over, and open the next one."""
        steps, left = self.steps, self._length - done
        if self._in_round:
            self.speeds.append((self._clock.round, steps.speed * steps.batch))
            steps.end_round(restarted=self._restarted)
            self._restarted = False
        self._in_round = True
        if steps.left <= 0 or steps.ran_s > int(steps.nominal_s * OVERTIME):
            return Pace(left / 1e-3, 1e-3)
        in_round, took = int(steps.speed * ROUND_S), steps.left / steps.speed
        if steps.left <= in_round and not (self._restarted and took > ENDING_S):
            return Pace(left / took, took)
        return Pace(left / max(took, 1.001 * ROUND_S), ROUND_S)


@dataclass(slots=True)
class InRounds:
    """The truth of the authors' simulator."""

    tables: Tables
    rows: Mapping[JobId, tuple[int, float]]  # steps at the first batch, nominal seconds
    clock: RoundClock = field(default_factory=RoundClock)
    jobs: dict[JobId, RoundByRound] = field(default_factory=dict)

    steady = False

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        round_by_round = RoundByRound(self.steps_of(job), truth.length, self.clock)
        self.jobs[job.id] = round_by_round
        return round_by_round

    def restart(self, job: Job, *, first: bool) -> float:  # noqa: ARG002
        return 0.0

    def steps_of(self, job: Job) -> Steps:
        """As the job stands, whether it has begun or not."""
        if job.id in self.jobs:
            return self.jobs[job.id].steps
        total, nominal = self.rows[job.id]
        batch = int(job.hints["batch"])
        model = job.model.split(" (")[0]
        free = job.submitted == 0.0
        gpus, mode = job.demand.gpus, job.hints["mode"]
        return Steps(self.tables, model, gpus, mode, batch, batch, total, nominal, free)


def read_rows(path: Path) -> dict[JobId, tuple[int, float]]:
    """Steps and nominal duration of every job of a trace."""
    rows = [line.split("\t") for line in path.read_text().splitlines() if line.strip()]
    return {JobId(f"job-{i}"): (int(row[5]), float(row[10])) for i, row in enumerate(rows)}


class StepBeliefs(LinearBeliefs):
    """Steps a second at the batch each job has now."""

    def __init__(self, truth: InRounds) -> None:
        self._truth = truth

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        speeds = [self._truth.steps_of(job).speed for job in table.jobs]
        return np.repeat(np.array(speeds)[:, None], len(kinds), axis=1)

    def restart_s(self, table: JobTable) -> Floats:
        return np.full(len(table), RESTART_S)


class AtPresentSpeed(PointPredictor, NothingLearnt):
    """Steps left at the speed of the present batch: what schedulers that react know."""

    asks = PredictorNeeds()
    label = "at present speed"

    def __init__(self, truth: InRounds) -> None:
        self._truth = truth

    def remaining(self, table: JobTable, now: float) -> Floats:  # noqa: ARG002
        steps = [self._truth.steps_of(job) for job in table.jobs]
        return np.array([step.left / step.speed for step in steps])

    def learn(self, ended: Ended) -> None:
        """Nothing."""


class ProfiledEpochs(Learner):
    """Epochs as the authors' Shockwave sees them: by progress in steps, batches by the profile.

    Profiled durations are whole seconds and are calibrated by throughputs since the first round.
    """

    def __init__(self, truth: InRounds, trace: Trace) -> None:
        super().__init__()
        self._truth = truth
        self._runs = {job.id: whole.schedule for job, whole in trace}

    def epochs(self, job: Job) -> EpochsSoFar | None:
        """Return the epochs of any job, begun or not."""
        declared = regimes_of(job)
        assert declared is not None
        over = min(self._truth.steps_of(job).epoch, declared.epochs)
        seen = EpochsSoFar.after(over, self._runs[job.id])
        return EpochsSoFar(over, seen.begun, seen.batch, self._amplify(job))

    def _amplify(self, job: Job) -> float:
        truth, declared = self._truth.jobs.get(job.id), regimes_of(job)
        assert declared is not None
        if truth is None or not truth.speeds:
            return 1.0
        measured, before = 0.0, 0
        for number, speed in truth.speeds:
            measured += speed * ROUND_S * (number - before)
            before = number
        left, profiled, each = ROUND_S * before, 0.0, 1.0
        for batch, epochs in self._runs[job.id]:
            each = declared.epoch_s[batch]
            whole = min(epochs, floor(left / each))
            profiled += whole * declared.samples
            left -= whole * each
            if whole < epochs:
                break
        profiled += declared.samples * left / each
        if measured <= 0.0 or profiled <= 0.0 or abs(measured - profiled) / profiled <= 0.4:
            return 1.0
        return profiled / measured
