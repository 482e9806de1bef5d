"""Beliefs about adaptive jobs from all that train the same model.

One fit a model and GPU kind over the reports of all its jobs, running and ended, so that a job is
known before its first report. How far it has come, and the noise of its gradients, are its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.events.report import Report
from weft.core.knowledge.costs import Attempt
from weft.core.model.job import Batch, Config, Job, JobId
from weft.core.state.cells import Column, Floats
from weft.core.state.table import Table
from weft.perf.goodput.belief import Belief, row_of
from weft.perf.goodput.beliefs import DECLARED, FittedBeliefs, same_configs
from weft.perf.goodput.facts import Facts
from weft.perf.goodput.fit import Row
from weft.perf.goodput.model import Limits, Noise, best_batch
from weft.perf.goodput.pool import Group, Pool

APART_S = 20.0  # reports this far apart tell how fast a job gets on
LEAST_LEFT = 1e-3  # of a training that has not ended


@dataclass(slots=True)
class Stand:
    """How far a job has come by its last report.

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
    """What is believed about jobs by what all jobs of their model reported.

    `pool` may be one that has learnt before.
    """

    def __init__(self, facts: Facts = DECLARED, *, pool: Pool | None = None) -> None:
        super().__init__(facts)
        self.pool = Pool() if pool is None else pool
        self._stands: dict[JobId, Stand] = {}
        self._seen: dict[JobId, tuple[object, ...]] = {}

    # ---- learning

    def observe(self, job: Job, kind: str, report: Report, attempt: Attempt | None = None) -> None:
        """Take in a report: step time, noise and progress."""
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
        self, job: Job, report: Report, attempt: Attempt, goodput: float, groups: list[Group]
    ) -> None:
        """How far the job has come, and whether that is as fast as it was believed."""
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
        self._stands[job.id] = Stand(
            attempt.number, attempt.at, attempt.ran, progress, work, goodput, noise
        )
        if before is None or before.attempt != attempt.number or not math.isfinite(work):
            return
        took, gained = attempt.ran - before.ran, progress - before.progress
        if took > APART_S and gained > 0.0 and not _shares(job, attempt):
            for group in groups:
                group.note_slower(before.goodput * took / (gained * work))

    def _goodput(
        self, job: Job, row: Row, report: Report, batch: float, noise: tuple[float, float] | None
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
        stands = {
            job: [
                stand.attempt,
                stand.at,
                stand.ran,
                stand.progress,
                None if math.isnan(stand.work) else stand.work,
                stand.goodput,
                stand.noise and list(stand.noise),
            ]
            for job, stand in self._stands.items()
        }
        return {"pool": self.pool.save(), "stands": stands}

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        self.pool.load(saved["pool"])
        for job, (number, at, ran, progress, work, goodput, noise) in saved["stands"].items():
            estimate = None if noise is None else (float(noise[0]), float(noise[1]))
            self._stands[JobId(job)] = Stand(
                number, at, ran, progress, math.nan if work is None else work, goodput, estimate
            )

    # ---- answers

    def goodputs(self, table: Table, configs: Sequence[Config]) -> Floats:
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
        beliefs: Sequence[Belief | None],
        fresh: Sequence[bool],
        configs: tuple[Config, ...],
        goodputs: Floats,
    ) -> None:
        """Rows that are not fresh, each from one that is believed to be alike if there is one."""
        alike: dict[tuple[object, ...], Belief] = {}
        news: list[tuple[int, Job, Belief]] = []
        stale: list[tuple[int, Belief, Belief]] = []
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
        self, table: Table, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        """The same by one model over all kinds."""
        self._refresh(table)
        return super().blind_goodputs(table, kinds, nodes, replicas)

    def most_run(self, table: Table) -> Floats:
        """The most replicas that any job of each row's model has run with."""
        self._refresh(table)
        return super().most_run(table)

    def alone(self, table: Table, kinds: Sequence[str]) -> Floats:
        """One replica on each kind, as kinds were compared beforehand; 0 where it cannot run."""
        rates = np.zeros((len(table), len(kinds)))
        for row, job in enumerate(table.jobs):
            facts = [self._facts.on(job, 1.0, kind) for kind in kinds]
            rates[row] = [
                0.0 if kind_facts is None else kind_facts.bootstrap for kind_facts in facts
            ]
        return rates

    def work(self, table: Table) -> Floats:
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

    def work_left(self, table: Table, now: float) -> Floats:
        """Work less progress, which goes on between reports at the last rate."""
        left: list[float] = self.work(table).tolist()
        ran: list[float] = table.ran(now).tolist()
        held: list[float] = table.held.tolist()
        attempt, since = (table.column(c).tolist() for c in (Column.ATTEMPT, Column.RAN_SINCE))
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
        own = self._facts.on(job, group.batch, config.kind)
        if own is None or own.unit > 1:
            return None
        init, largest, _ = self._facts.batches(job, group.batch)
        limits = Limits(largest, float(own.min_local), float(own.max_local))
        noise = Noise(*self._noise(job, group), init)
        times = group.measured[config.kind].times()
        best = best_batch(times, noise, float(config.nodes), float(config.gpus), limits)
        return Batch(int(best.local), int(best.accumulate)) if best.goodput > 0.0 else None

    def _noise(self, job: Job, group: Group) -> tuple[float, float]:
        stand = self._stands.get(job.id)
        if stand is not None and stand.noise is not None:
            return stand.noise
        return group.noise_at(0.0 if stand is None else stand.progress)

    def _refresh(self, table: Table) -> None:
        """Let every row's belief be its group's, with the noise of its own."""
        for job in table.jobs:
            group = self.pool.find(job)
            if group is None:
                self._known.pop(job.id, None)
                continue
            belief = self._known.get(job.id)
            if belief is None:
                belief = self._known[job.id] = Belief()
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


def _shares(job: Job, attempt: Attempt | None) -> bool:
    """Whether others are on the devices of a job that could have them alone."""
    return attempt is not None and attempt.on.sharing.share < job.demand.share


def _is_slowed(job: Job, report: Report, attempt: Attempt | None) -> bool:
    """Whether a neighbour is in the measured times: a job that knows its pace told them without."""
    return report.pace is None and _shares(job, attempt)
