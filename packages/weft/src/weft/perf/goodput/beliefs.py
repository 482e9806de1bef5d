"""Beliefs of the scheduler about adaptive jobs, fitted from their reports.

One step-time model a GPU kind and one pair of gradient statistics a job. A kind that a job has
not run on yet borrows the model of one it has, scaled by single-GPU speeds (Sia, SOSP 2023).
Nothing is known about a job before its first report. Simulated and real jobs are judged alike; only
what is known apart from reports differs (`weft.perf.goodput.facts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft.base.step_times import StepTime
from weft.core.codec.plain_values import decode, encode
from weft.core.events.report import Report
from weft.core.model.job import Config, Job, JobId
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.perf.goodput.belief import JobBelief, row_of
from weft.perf.goodput.curves import NO_SIZES, Case, Menu, by_kind, evaluate, work_out
from weft.perf.goodput.early_fit import early_fit
from weft.perf.goodput.facts import DeclaredFacts, Facts
from weft.perf.goodput.fit import fit
from weft.perf.goodput.measurements import StepMeasurements
from weft.perf.goodput.model import BatchBounds, Noise, best_batch
from weft.perf.goodput.tables import KindFacts
from weft.perf.linear import NoPairs

DECLARED = DeclaredFacts()


class FittedBeliefs(NoPairs):
    """Goodput of jobs that report, as fitted; `facts` are what is known about jobs besides.

    `early` fits the models over all kinds as the authors' simulator of Sia does.
    """

    def __init__(self, facts: Facts = DECLARED, *, early: bool = False) -> None:
        self._facts = facts
        self._mixed_fit = early_fit if early else fit
        self._known: dict[JobId, JobBelief] = {}

    def observe(self, job: Job, kind: str, report: Report) -> None:
        """Take in a report: a step time if it is of a new configuration, and the noise."""
        row = row_of(report)
        if row is None:
            return
        belief = self._known.get(job.id)
        if belief is None:
            belief = self._known[job.id] = JobBelief(mixed=StepMeasurements(0.0, self._mixed_fit))
        own = belief.measured.get(kind)
        if own is None:
            own = belief.measured[kind] = StepMeasurements()
        before = own.version
        if own.observe(row):  # else all kinds together have it too
            belief.mixed.observe(row)
        if own.version != before:
            own.times()  # fitted as reports come in, not while a decision waits
        batch = float(row.local * row.replicas) if report.batch is None else report.batch
        sqr, var = report.grad_sqr, report.grad_var
        noise = belief.noise if sqr is None or var is None else (sqr, var)
        rebatched = job.batch is None and batch != belief.batch
        if (
            own.version == before
            and noise == belief.noise
            and row.replicas <= belief.most
            and not rebatched
        ):
            return
        belief.noise, belief.batch = noise, batch
        belief.most = max(belief.most, row.replicas)
        belief.version += 1

    def forget(self, job: Job) -> None:
        self._known.pop(job.id, None)

    def save(self) -> Any:
        """Return the measurements of running jobs; the curves follow from them."""
        return encode(self._known)

    def load(self, saved: Any) -> None:
        self._known = decode(dict[JobId, JobBelief], saved)
        for belief in self._known.values():
            belief.mixed.close, belief.mixed.fitted = 0.0, self._mixed_fit

    def most_run(self, table: JobTable) -> Floats:
        most = []
        for job in table.jobs:
            belief = self._known.get(job.id)
            most.append(self._facts.assumed_replicas(job) if belief is None else float(belief.most))
        return np.array(most)

    def restart_s(self, table: JobTable) -> Floats:
        return np.array([self._facts.restart_s(job) for job in table.jobs])

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """Speed of each row at the size and batch it was submitted with."""
        rates = np.zeros((len(table), len(kinds)))
        for row, job in enumerate(table.jobs):
            rates[row] = [self._facts.submitted_speed(job, kind) for kind in kinds]
        return rates

    def units(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """GPUs of one replica of each row on each kind; 0 where it cannot run."""
        units = [self._facts.replica_gpus(job, kinds) for job in table.jobs]
        return np.array(units, dtype=float).reshape(len(table), len(kinds))

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        """Return goodputs as rows x configurations; what has not changed is not computed again."""
        goodputs = np.full((len(table), len(configs)), np.nan)
        which = same_configs(tuple(configs))
        stale: list[tuple[int, Job, JobBelief]] = []
        for row, job in enumerate(table.jobs):
            belief = self._known.get(job.id)
            if belief is None:
                continue
            if belief.curve is not None and belief.curve_of == (belief.version, which):
                goodputs[row] = belief.curve
            else:
                stale.append((row, job, belief))
        if stale:
            self._evaluate(stale, which, goodputs)
        return goodputs

    def blind_goodputs(
        self, table: JobTable, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        """Rows x shapes, by one model a job over what it measured on all kinds."""
        return blind_goodputs(self._facts, self._known, table, kinds, nodes, replicas)

    def _evaluate(
        self, stale: list[tuple[int, Job, JobBelief]], configs: tuple[Config, ...], goodputs: Floats
    ) -> None:
        """Jobs alike are evaluated once: equal steps are worked out once, and equal noise."""
        self._work_out_steps(stale, configs)
        alike: dict[tuple[int, tuple[float, float]], list[tuple[int, JobBelief]]] = {}
        for row, _, belief in stale:
            alike.setdefault((id(belief.steps), belief.noise), []).append((row, belief))
        first = [group[0][1] for group in alike.values()]
        curves = evaluate(
            [(belief.steps or NO_SIZES, belief.noise) for belief in first], len(configs)
        )
        for group, curve in zip(alike.values(), curves, strict=True):
            for row, belief in group:
                goodputs[row] = curve
                belief.curve, belief.curve_of = curve.copy(), (belief.version, configs)

    def _work_out_steps(
        self, stale: list[tuple[int, Job, JobBelief]], configs: tuple[Config, ...]
    ) -> None:
        """Work out the steps of jobs that measured something new, or may have other sizes."""
        menu = _group(configs)
        new: dict[tuple[Case, ...], list[JobBelief]] = {}
        for _, job, belief in stale:
            batch = belief.batch if job.batch is None else 0.0
            times = [(kind, measured.times()) for kind, measured in belief.measured.items()]
            inputs = (configs, job, batch, belief.most, *times)
            if belief.steps_of != inputs:
                belief.steps_of = inputs
                new.setdefault(self._cases(job, belief, menu.kinds), []).append(belief)
        if not new:
            return
        for beliefs, steps in zip(new.values(), work_out([*new], menu), strict=True):
            for belief in beliefs:
                belief.steps = steps

    def _cases(self, job: Job, belief: JobBelief, kinds: Iterable[str]) -> tuple[Case, ...]:
        """Return the case of a job on each kind that it can run on."""
        init, largest, fixed = self._facts.batches(job, belief.batch)
        cases = []
        for kind in kinds:
            own = self._facts.limits_on(job, belief.batch, kind)
            if own is None:
                continue
            times, source, factor = self._source(job, belief, kind, own)
            cases.append(
                Case(
                    kind,
                    times,
                    source.node_gpus,
                    source.unit,
                    factor,
                    BatchBounds(largest, float(source.min_local), float(source.max_local)),
                    init,
                    fixed,
                    self._facts.most_replicas(job, belief.most, own, source),
                    own.max_nodes,
                    own.unit,
                )
            )
        return tuple(cases)

    def _source(
        self, job: Job, belief: JobBelief, kind: str, own: KindFacts
    ) -> tuple[StepTime, KindFacts, float]:
        """The model to use for a kind: its own, else the first known one's, scaled."""
        if kind in belief.measured:
            return belief.measured[kind].times(), own, 1.0
        known = next(iter(belief.measured))
        other = self._facts.limits_on(job, belief.batch, known)
        assert other is not None  # it ran there
        return belief.measured[known].times(), other, own.bootstrap / other.bootstrap


@lru_cache(maxsize=16)
def same_configs(configs: tuple[Config, ...]) -> tuple[Config, ...]:
    """One object for equal ones, so that it is quick to compare."""
    return configs


@lru_cache(maxsize=16)
def _group(configs: tuple[Config, ...]) -> Menu:
    return by_kind(configs)


# ---- goodput as Pollux believes it: all kinds taken for one
# One step-time model a job, fitted to what it measured on any kind; of two measurements of the
# same configuration the first counts (as in the simulator of Sia, SOSP 2023).


def blind_goodputs(
    facts: Facts,
    known: Mapping[JobId, JobBelief],
    table: JobTable,
    kinds: Sequence[str],
    nodes: Floats,
    replicas: Floats,
) -> Floats:
    """Rows x shapes, evaluated together; what has not changed is remembered."""
    goodputs = np.full((len(table), len(nodes)), np.nan)
    shapes = (tuple(kinds), nodes.tobytes(), replicas.tobytes())
    stale: list[tuple[int, Job, JobBelief]] = []
    for row, job in enumerate(table.jobs):
        belief = known.get(job.id)
        if belief is None:
            continue
        if belief.blind is not None and belief.blind_of == (
            belief.version,
            belief.mixed.version,
            *shapes,
        ):
            goodputs[row] = belief.blind
        else:
            stale.append((row, job, belief))
    if stale:
        rows = [row for row, _, _ in stale]
        goodputs[rows] = _evaluate(facts, stale, kinds, nodes, replicas)
    for row, _, belief in stale:
        belief.blind, belief.blind_of = (
            goodputs[row].copy(),
            (belief.version, belief.mixed.version, *shapes),
        )
    return goodputs


def _evaluate(
    facts: Facts,
    stale: Sequence[tuple[int, Job, JobBelief]],
    kinds: Sequence[str],
    nodes: Floats,
    replicas: Floats,
) -> Floats:
    params, noise, limits = [], [], []
    for _, job, belief in stale:
        init, *bounds = facts.limits_on_any_kind(job, belief.batch, kinds)
        params.append(belief.mixed.times())
        noise.append((*belief.noise, init))
        limits.append(bounds)
    best = best_batch(
        StepTime(*_columns(params)),
        Noise(*_columns(noise)),
        nodes,
        replicas,
        BatchBounds(*_columns(limits)),
    )
    return np.asarray(best.goodput)


def _columns(rows: Sequence[Sequence[float]]) -> Floats:
    """One column of cases for each parameter."""
    return np.array(rows, dtype=float).T[:, :, None]
