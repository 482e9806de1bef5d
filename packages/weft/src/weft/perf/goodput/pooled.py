"""Beliefs about adaptive jobs from all that train the same model.

One fit a model and GPU kind over the reports of all its jobs, running and ended, so that a job is
known before its first report. How far it has come, and the noise of its gradients, are its own.

A job is pooled with others that declare the same model: with those of its user if enough of them
reported, else with its tenant's, else with all jobs'. A job that declares none is on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from weft.base.step_fit import FitRow
from weft.core.codec.plain_values import decode, encode
from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.model.job import Batch, Config, Job, JobId
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import JobTable
from weft.perf.goodput.belief import NO_NOISE, JobBelief, row_of
from weft.perf.goodput.beliefs import DECLARED, FittedBeliefs, same_configs
from weft.perf.goodput.facts import Facts
from weft.perf.goodput.measurements import StepMeasurements
from weft.perf.goodput.model import BatchBounds, Noise, best_batch

Key = tuple[str, ...]
BINS = 20  # of progress, by which gradient noise is kept
ENOUGH = 3  # jobs that must have reported before a narrower group is believed
KEPT = 50  # of the last measured slow-downs
ASSUMED = 1.2  # work really needed over what goodput promises, before it was measured


@dataclass(slots=True)
class MeasuredGroup:
    """Measurements of one group of jobs.

    `noise` are squared norm and variance of gradients by part of the training, with how many told
    them; `most` is the most replicas any of them ran with, `batch` what one last trained with,
    `work` the samples of a whole training as last declared, `slower` by how much more of them one
    really needs than its goodput promises; `told` the jobs that reported, at most `ENOUGH`.
    """

    measured: dict[str, StepMeasurements] = field(default_factory=dict)
    mixed: StepMeasurements = field(default_factory=lambda: StepMeasurements(close=0.0))
    noise: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    most: int = 0
    batch: float = 1.0
    work: float = math.nan
    slower: list[float] = field(default_factory=list)
    told: list[JobId] = field(default_factory=list)
    version: int = 0
    _needed: float | None = field(default=None, init=False, compare=False, repr=False)

    def observe(self, job: JobId, kind: str, row: FitRow) -> None:
        own = self.measured.get(kind)
        if own is None:
            own = self.measured[kind] = StepMeasurements()
        before = own.version, self.most
        if own.observe(row):  # else all kinds together have it too
            self.mixed.observe(row)
        if own.version != before[0]:
            own.times()  # fitted as reports come in, not while a decision waits
        self.most = max(self.most, row.replicas)
        self.version += (own.version, self.most) != before
        if len(self.told) < ENOUGH and job not in self.told:
            self.told.append(job)

    def observe_noise(self, progress: float, sqr: float, var: float) -> None:
        """Gradients were measured so far into a training."""
        at = min(int(progress * BINS), BINS - 1)
        count, s, v = self.noise.get(at, (0, 0.0, 0.0))
        count += 1
        self.noise[at] = count, s + (sqr - s) / count, v + (var - v) / count

    def noise_at(self, progress: float) -> tuple[float, float]:
        """The noise measured nearest to a part of the training."""
        if not self.noise:
            return NO_NOISE
        return self.noise[min(self.noise, key=lambda at: abs(at - progress * BINS))][1:]

    def note_slower(self, ratio: float) -> None:
        """Note that a job needed that many times the work that goodput promised."""
        self._needed = None
        self.slower.append(ratio)
        del self.slower[:-KEPT]

    def needed(self) -> float:
        """Times the declared work that a training needs, in samples of believed goodput."""
        if self._needed is None:
            self._needed = median(self.slower) if self.slower else ASSUMED
        return self._needed


def groups_of(job: Job) -> tuple[Key, ...]:
    """Its user's jobs of the model, its tenant's, all jobs'; alone where it declares none."""
    if not job.model:
        return (("", job.id),)
    keys: tuple[Key, ...] = ((job.model,),)
    if job.tenant:
        keys = (job.model, job.tenant), *keys
    if job.user:
        keys = (job.model, job.tenant, job.user), *keys
    return keys


@dataclass(slots=True)
class MeasurementPool:
    """Groups by key; `keys` says which a job belongs to, the narrowest first."""

    keys: Callable[[Job], tuple[Key, ...]] = groups_of
    groups: dict[Key, MeasuredGroup] = field(default_factory=dict)

    def all_of(self, job: Job) -> list[MeasuredGroup]:
        """The groups of a job, made where they are new."""
        keys = self.keys(job)
        for key in keys:
            if key not in self.groups:
                self.groups[key] = MeasuredGroup()
        return [self.groups[key] for key in keys]

    def find(self, job: Job) -> MeasuredGroup | None:
        """The narrowest group in which enough jobs reported, else the widest where any did."""
        widest = None
        for key in self.keys(job):
            group = self.groups.get(key)
            if group is None or not group.measured:
                continue
            if len(group.told) >= ENOUGH:
                return group
            widest = group
        return widest

    def forget(self, job: Job) -> None:
        """A job has left: what only it reported is dropped."""
        for key in self.keys(job):
            if job.id in key:
                self.groups.pop(key, None)


APART_S = 20.0  # reports this far apart tell how fast a job gets on
LEAST_LEFT = 1e-3  # of a training that has not ended


@dataclass(slots=True)
class GroupState:
    """Progress of a job by its last report.

    `attempt` it was, `at` when, after `ran` seconds of executing; `progress` and declared `work`,
    useful samples per second; squared norm and variance of its gradients.
    """

    attempt: int
    at: float
    ran: float
    progress: float
    work: float
    goodput: float
    noise: tuple[float, float] | None


class PooledBeliefs(FittedBeliefs):
    """Beliefs about jobs from the reports of all jobs of their model.

    `pool` may be one that has learnt before.
    """

    def __init__(self, facts: Facts = DECLARED, *, pool: MeasurementPool | None = None) -> None:
        super().__init__(facts)
        self.pool = MeasurementPool() if pool is None else pool
        self._stands: dict[JobId, GroupState] = {}
        self._seen: dict[JobId, tuple[object, ...]] = {}

    # ---- learning

    def observe(
        self, job: Job, kind: str, report: Report, attempt: AttemptSource | None = None
    ) -> None:
        row = row_of(report)
        if row is None:
            return
        batch = float(row.local * row.replicas) if report.batch is None else report.batch
        progress = report.progress or 0.0
        noise = None
        if report.grad_sqr is not None and report.grad_var is not None:
            noise = report.grad_sqr, report.grad_var
        slowed = _is_slowed(job, report, attempt)
        groups = self.pool.all_of(job)
        for group in groups:
            if not slowed:
                group.observe(job.id, kind, row)
            group.batch = batch
            if noise is not None:
                group.observe_noise(progress, *noise)
        if attempt is not None:
            goodput = self._goodput(job, row, report, batch, noise)
            self._advance(job, report, attempt, goodput, groups)

    def _advance(
        self,
        job: Job,
        report: Report,
        attempt: AttemptSource,
        goodput: float,
        groups: list[MeasuredGroup],
    ) -> None:
        """Take in the job's progress, and whether it is as fast as believed."""
        before = self._stands.get(job.id)
        noise = before.noise if before is not None else None
        if report.grad_sqr is not None and report.grad_var is not None:
            noise = report.grad_sqr, report.grad_var
        progress, work = report.progress or 0.0, _declared(report)
        if math.isfinite(work):
            for group in groups:
                group.work = work
        elif before is not None:
            work = before.work
        self._stands[job.id] = GroupState(
            attempt.number, attempt.at, attempt.ran, progress, work, goodput, noise
        )
        if before is None or before.attempt != attempt.number or not math.isfinite(work):
            return
        took, gained = attempt.ran - before.ran, progress - before.progress
        if took > APART_S and gained > 0.0 and not _shares(job, attempt):
            for group in groups:
                group.note_slower(before.goodput * took / (gained * work))

    def _goodput(
        self, job: Job, row: FitRow, report: Report, batch: float, noise: tuple[float, float] | None
    ) -> float:
        """Useful samples per second of what a report tells."""
        init = self._facts.batches(job, batch).init
        took = row.step_s if report.step_s is None else report.step_s
        gain = batch / init if noise is None else float(Noise(*noise, init).gain(batch))
        return init * gain / took

    def forget(self, job: Job) -> None:
        """A job has left; what it reported about its model is kept."""
        super().forget(job)
        self._stands.pop(job.id, None)
        self._seen.pop(job.id, None)
        self.pool.forget(job)

    def save(self) -> Any:
        """The pool, and how far each job is."""
        return {"groups": encode(self.pool.groups), "stands": encode(self._stands)}

    def load(self, saved: Any) -> None:
        self.pool.groups = decode(dict[Key, MeasuredGroup], saved["groups"])
        for group in self.pool.groups.values():
            group.mixed.close = 0.0
        self._stands = decode(dict[JobId, GroupState], saved["stands"])

    # ---- answers

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        """Rows x configurations; NaN in rows of models without reports.

        Jobs that are believed to be alike are evaluated once.
        """
        self._refresh(table)
        goodputs = np.full((len(table), len(configs)), np.nan)
        which = same_configs(tuple(configs))
        beliefs = [self._known.get(job.id) for job in table.jobs]
        fresh = [b is not None and b.curve_of == (b.version, which) for b in beliefs]
        for row, belief in enumerate(beliefs):
            if belief is not None and fresh[row]:
                goodputs[row] = belief.curve
        if fresh.count(False) > beliefs.count(None):
            self._evaluate_stale(table.jobs, beliefs, fresh, which, goodputs)
        return goodputs

    def _evaluate_stale(
        self,
        jobs: Sequence[Job],
        beliefs: Sequence[JobBelief | None],
        fresh: Sequence[bool],
        configs: tuple[Config, ...],
        goodputs: Floats,
    ) -> None:
        """Rows that are not fresh, each from one that is believed to be alike if there is one."""
        alike: dict[tuple[object, ...], JobBelief] = {}
        news: list[tuple[int, Job, JobBelief]] = []
        stale: list[tuple[int, JobBelief, JobBelief]] = []
        for row, (job, belief) in enumerate(zip(jobs, beliefs, strict=True)):
            if belief is None:
                continue
            batches = self._facts.batches(job, belief.batch)
            key = (*self._seen[job.id], batches, job.batch, job.demand, job.model)
            first = alike.setdefault(key, belief)
            if fresh[row]:
                continue
            if first is belief:
                news.append((row, job, belief))
            else:
                stale.append((row, belief, first))
        if news:
            self._evaluate(news, configs, goodputs)
        for row, belief, first in stale:
            belief.curve, belief.curve_of = first.curve, (belief.version, configs)
            goodputs[row] = first.curve

    def blind_goodputs(
        self, table: JobTable, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        """Return believed goodputs by one model over all kinds."""
        self._refresh(table)
        return super().blind_goodputs(table, kinds, nodes, replicas)

    def most_run(self, table: JobTable) -> Floats:
        """The most replicas that any job of each row's model has run with."""
        self._refresh(table)
        return super().most_run(table)

    def alone(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """One replica on each kind, as kinds were compared beforehand; 0 where it cannot run."""
        rates = np.zeros((len(table), len(kinds)))
        for row, job in enumerate(table.jobs):
            facts = [self._facts.limits_on(job, 1.0, kind) for kind in kinds]
            rates[row] = [
                0.0 if kind_facts is None else kind_facts.bootstrap for kind_facts in facts
            ]
        return rates

    def work(self, table: JobTable) -> Floats:
        """Declared work, times what trainings of the model were found to need."""
        work: list[float] = []
        needed: dict[int, float] = {}
        for job in table.jobs:
            group, stand = self.pool.find(job), self._stands.get(job.id)
            if group is None:
                work.append(math.nan)
                continue
            if id(group) not in needed:
                needed[id(group)] = group.needed()
            reported = stand is not None and math.isfinite(stand.work)
            work.append((stand.work if reported and stand else group.work) * needed[id(group)])
        return np.array(work)

    def work_left(self, table: JobTable, now: float) -> Floats:
        """Work less progress, which goes on between reports at the last rate."""
        left: list[float] = self.work(table).tolist()
        ran: list[float] = table.ran(now).tolist()
        held: list[float] = table.held.tolist()
        attempt, since = (
            table.column(c).tolist() for c in (TableColumns.ATTEMPT, TableColumns.RAN_SINCE)
        )
        for row, job in enumerate(table.jobs):
            stand, needed = self._stands.get(job.id), left[row]
            if stand is None or math.isnan(needed):
                continue
            trained = ran[row] - stand.ran
            if held[row] and attempt[row] != stand.attempt:
                trained -= now - since[row]  # it is still restoring
            part = 1.0 - stand.progress - max(trained, 0.0) * stand.goodput / needed
            left[row] = max(part, LEAST_LEFT) * needed
        return np.array(left)

    def first_batch(self, job: Job, config: Config) -> Batch | None:
        """The best batch on a size, by the fit of its model."""
        group = self.pool.find(job)
        if group is None or config.kind not in group.measured or job.batch is None:
            return None
        own = self._facts.limits_on(job, group.batch, config.kind)
        if own is None or own.unit > 1:
            return None
        init, largest, _ = self._facts.batches(job, group.batch)
        limits = BatchBounds(largest, float(own.min_local), float(own.max_local))
        noise = Noise(*self._noise(job, group), init)
        times = group.measured[config.kind].times()
        best = best_batch(times, noise, float(config.nodes), float(config.gpus), limits)
        return Batch(int(best.local), int(best.accumulate)) if best.goodput > 0.0 else None

    def _noise(self, job: Job, group: MeasuredGroup) -> tuple[float, float]:
        stand = self._stands.get(job.id)
        if stand is not None and stand.noise is not None:
            return stand.noise
        return group.noise_at(0.0 if stand is None else stand.progress)

    def _refresh(self, table: JobTable) -> None:
        """Let every row's belief be its group's, with the noise of its own."""
        for job in table.jobs:
            group = self.pool.find(job)
            if group is None:
                self._known.pop(job.id, None)
                continue
            belief = self._known.get(job.id)
            if belief is None:
                belief = self._known[job.id] = JobBelief()
            noise = self._noise(job, group)
            seen = (id(group), group.version, noise, job.batch is None and group.batch)
            if self._seen.get(job.id) != seen:
                self._seen[job.id] = seen
                belief.measured, belief.mixed = group.measured, group.mixed
                belief.noise, belief.batch = noise, group.batch
                belief.most = max(group.most, -(-job.demand.min // 2))
                belief.version += 1


def _declared(report: Report) -> float:
    """Samples of the whole training; NaN where a report does not tell."""
    if report.work is not None:
        return report.work
    if report.samples and report.progress:
        return report.samples / report.progress
    return math.nan


def _shares(job: Job, attempt: AttemptSource | None) -> bool:
    """Return true if others are on the devices of a job that could have them alone."""
    return attempt is not None and attempt.on.sharing.share < job.demand.share


def _is_slowed(job: Job, report: Report, attempt: AttemptSource | None) -> bool:
    """Return true if a neighbour is in the measured times; with a known pace it is not."""
    return report.pace is None and _shares(job, attempt)
