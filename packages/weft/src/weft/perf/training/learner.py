"""Learnt speeds of trainings by workers and servers, losses, and epochs."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from weft.core.codec.plain_values import decode, encode
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import EpochsSoFar, LossSoFar
from weft.core.model.cluster import Cluster
from weft.core.model.job import Job, JobId
from weft.core.state.cells import Floats
from weft.formulas.training.regimes import Regimes, regimes_of
from weft.formulas.training.tasks import Ratios, Tasks, tasks_of
from weft.perf.goodput.belief import row_of
from weft.perf.training.layered import (
    Network,
    network_of,
    place_apart,
    place_together,
    ratio_form,
    speed,
)
from weft.perf.training.loss_laws import (
    LEAST_POINTS,
    LinearConvergence,
    SublinearConvergence,
    epochs_left,
    fit_law,
)
from weft.perf.training.servers import (
    Asynchronous,
    SpeedPoint,
    Synchronous,
    average,
    fit_asynchronous,
    fit_synchronous,
)

MOST_EPOCHS = 100_000  # a job that counts further is not believed
HISTORY = 60  # points; older ones weigh nothing any more
PROBES, LARGEST_PROBE = 8, 10
ANYWHERE = Cluster(())


@dataclass(slots=True)
class ReportedLosses:
    """Reports of one job so far."""

    iterations: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    recent: float = 0.0
    largest: float = 0.0
    gpu_s: float = 0.0
    steps: float = 0.0
    speeds: dict[tuple[int, int], float] = field(default_factory=dict)
    law: SublinearConvergence | LinearConvergence | None = None
    reports: int = 0
    fit_at: int = 1
    fitted: Synchronous | Asynchronous | None = field(default=None, init=False)
    ratios: Ratios | None = field(default=None, init=False)
    left: float = field(default=0.0, init=False)
    left_of: int = field(default=-1, init=False)

    def take(self, loss: LossPoint) -> None:
        """One more loss; one of an iteration that was reported before changes nothing."""
        self.largest = max(self.largest, loss.largest)
        self.recent = loss.recent or self.recent
        self.gpu_s = self.gpu_s if loss.gpu_s is None else loss.gpu_s
        if self.iterations and loss.iteration <= self.iterations[-1]:
            return
        self.reports += 1
        self.iterations.append(loss.iteration)
        self.losses.append(loss.loss)
        del self.iterations[:-HISTORY], self.losses[:-HISTORY]
        more = min(int(loss.epoch) + 1, MOST_EPOCHS) - len(self.epochs)
        self.epochs += [loss.loss] * more


class Learner:
    """Beliefs of trainings on a cluster, simulated or real.

    Speeds are fitted to a few trial runs of each job, placed evenly on the fewest nodes; a speed
    that was measured since overrides the fit. A loss that scatters from batch to batch is smoothed
    first; one that a job follows itself, iteration by iteration, is taken as it is.
    """

    def __init__(self, cluster: Cluster = ANYWHERE) -> None:
        self._node_gpus = min((node.gpus for node in cluster.nodes), default=1)
        self._heard: dict[JobId, ReportedLosses] = {}
        self._smoothed: dict[JobId, SmoothedLosses] = {}
        self._epochs: dict[JobId, EpochsSoFar] = {}

    def observe(self, job: Job, kind: str, report: Report) -> None:  # noqa: ARG002
        """Take in a speed, a count of updates, an epoch, a loss, or all of them."""
        if (epochs := follow_epochs(job, self._epochs.get(job.id), report)) is not None:
            self._epochs[job.id] = epochs
        heard = self._heard.setdefault(job.id, ReportedLosses())
        if report.updates_per_s is not None:
            at = int(report.servers or 0.0), int(report.workers or 0.0)
            heard.speeds[at] = report.updates_per_s
            heard.steps = max(heard.steps, report.steps or 0.0)
        if report.loss is None:
            return
        loss: LossPoint | None
        if report.iteration is not None:
            loss = follow_loss(report)
        else:
            loss = self._smoothed.setdefault(job.id, SmoothedLosses()).take(report)
        if loss is not None:
            heard.take(loss)

    def forget(self, job: Job) -> None:
        self._heard.pop(job.id, None)
        self._smoothed.pop(job.id, None)
        self._epochs.pop(job.id, None)

    def save(self) -> Any:
        """Return the reports of running jobs, and the laws of their losses."""
        return encode({"heard": self._heard, "smoothed": self._smoothed, "epochs": self._epochs})

    def load(self, saved: Any) -> None:
        self._heard = decode(dict[JobId, ReportedLosses], saved["heard"])
        self._smoothed = decode(dict[JobId, SmoothedLosses], saved["smoothed"])
        self._epochs = decode(dict[JobId, EpochsSoFar], saved["epochs"])

    def ratios(self, job: Job) -> Ratios | None:
        """Return ratios by the layers, their overlap measured, no task beside another."""
        known = _known(job)
        if known is None:
            return None
        heard = self._heard.setdefault(job.id, ReportedLosses())
        if heard.ratios is None:
            tasks, network = known
            at = place_apart(max(job.demand.gpus, 1), tasks.servers)
            heard.ratios = ratio_form(network, tasks, at)
        return heard.ratios

    def step_seconds(self, job: Job, workers: int, servers: int) -> Floats | None:
        """Return step times by the fitted law; where a speed was measured, by that."""
        known = _known(job)
        if known is None:
            return None
        heard = self._heard.setdefault(job.id, ReportedLosses())
        if heard.fitted is None:
            heard.fitted = self._probed(job, *known)
        w, p = np.arange(1, workers + 1.0), np.arange(1, servers + 1.0)
        seconds = np.full((servers + 1, workers + 1), np.inf)
        seconds[1:, 1:] = 1.0 / heard.fitted.speed(p[:, None], w[None, :])
        for (p_, w_), measured in heard.speeds.items():
            if 0 < p_ <= servers and 0 < w_ <= workers and measured > 0.0:
                seconds[p_, w_] = 1.0 / measured
        return seconds

    def steps_left(self, job: Job) -> float | None:
        """Return steps left by the reported losses, else by the job's declaration."""
        tasks, heard = tasks_of(job), self._heard.get(job.id)
        if tasks is None:
            return None
        if heard is None:
            return tasks.steps
        epochs = job.hints.get("epochs", 0.0)
        if len(heard.epochs) < LEAST_POINTS or epochs <= 0.0:
            return max(tasks.steps - heard.steps, 0.0)
        if heard.left_of != len(heard.epochs):
            heard.left, heard.left_of = epochs_left(heard.epochs), len(heard.epochs)
        return max(heard.left, 1.0) * tasks.steps / epochs

    def seconds_left(self, job: Job) -> float | None:
        """Return the time left by the epochs that its loss still needs, or None.

        Of jobs that report their losses step by step: of others the time is asked by size.
        """
        smoothed, heard = self._smoothed.get(job.id), self._heard.get(job.id)
        if smoothed is None or heard is None or len(heard.epochs) <= LEAST_POINTS:
            return None
        if smoothed.epoch_steps <= 0.0 or smoothed.gpu_s <= 0.0:
            return None
        if heard.left_of != len(heard.epochs):
            # The epoch under way has begun only: its loss is that of its beginning.
            heard.left, heard.left_of = epochs_left(heard.epochs[:-1]), len(heard.epochs)
        return max(heard.left, 1.0) * smoothed.epoch_steps * smoothed.gpu_s / job.demand.gpus

    def learned(self, job: Job) -> LossSoFar | None:
        """The last report, and the law of all of them."""
        heard = self._heard.get(job.id)
        if heard is None or not heard.losses:
            return None
        if heard.reports >= heard.fit_at:
            # A law of many points hardly changes with one more: a tenth more is worth a fit.
            heard.fit_at = heard.reports + max(heard.reports // 10, 1)
            heard.law = fit_law(heard.iterations, heard.losses)
        return LossSoFar(
            heard.iterations[-1],
            heard.losses[-1],
            heard.largest,
            heard.recent,
            heard.gpu_s,
            heard.law,
        )

    def epochs(self, job: Job) -> EpochsSoFar | None:
        """As it reported them; None of a job that declares no regimes or has not reported."""
        return self._epochs.get(job.id)

    def _probed(self, job: Job, tasks: Tasks, network: Network) -> Synchronous | Asynchronous:
        """A law for the job, from trial runs of sizes drawn at random."""
        rng = np.random.default_rng(crc32(job.id.encode()))
        most = min(LARGEST_PROBE, max(job.demand.max, 3))
        sizes = {(1, 1), (2, 1), (1, 2), (2, 2), (most, most)}
        while len(sizes) < min(PROBES, most * most):
            sizes.add((int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1))))
        points = average(
            SpeedPoint(p, w, speed(network, tasks, place_together(w, p, self._node_gpus)))
            for p, w in sizes
        )
        if tasks.sync:
            return fit_synchronous(points, tasks.batch)
        return fit_asynchronous(points)


def _known(job: Job) -> tuple[Tasks, Network] | None:
    tasks = tasks_of(job)
    network = network_of(job) if tasks is not None else None
    return None if tasks is None or network is None else (tasks, network)


# ---- Losses as jobs report them: by iterations, or of single batches with all their scatter


SMOOTH = 0.3  # the part that a new loss has in the smoothed one


class LossPoint(NamedTuple):
    """A loss after an iteration, and its changes in one: the last one and the largest.

    `gpu_s` is one iteration's time times its GPUs, None where unknown.
    """

    iteration: float
    epoch: float
    loss: float
    recent: float
    largest: float
    gpu_s: float | None


def follow_loss(report: Report) -> LossPoint | None:
    """The loss of a job that follows it itself; None where it reports none."""
    if report.iteration is None or report.loss is None:
        return None
    seconds = report.iteration_s
    return LossPoint(
        report.iteration,
        report.iteration if report.epoch is None else report.epoch,
        report.loss,
        report.loss_change or 0.0,
        report.loss_change_most or 0.0,
        None if seconds is None else seconds * (report.gpus or 1.0),
    )


@dataclass(slots=True)
class SmoothedLosses:
    """The loss of a job that reports that of its last batch.

    `loss` is smoothed; `largest` and `recent` are changes of it in one step. `gpu_s` is one step's
    time times its GPUs. An epoch has `epoch_steps` steps, 0 before one was seen from end to end.
    """

    steps: float = -1.0
    loss: float = 0.0
    largest: float = 0.0
    recent: float = 0.0
    gpu_s: float = 0.0
    epoch: float = 0.0
    epoch_began: float | None = None
    epoch_steps: float = 0.0

    def take(self, report: Report) -> LossPoint | None:
        """Take in a report; None for one with nothing new."""
        row, steps, loss = row_of(report), report.steps, report.loss
        if row is None or steps is None or loss is None or report.step_s is None:
            return None
        if not isfinite(loss) or steps <= self.steps:
            return None
        before = self.loss
        if self.steps >= 0.0:
            loss = (1.0 - SMOOTH) * before + SMOOTH * loss
            self.recent = abs(before - loss) / (steps - self.steps)
            self.largest = max(self.largest, self.recent)
        self.loss, self.steps = loss, steps
        self.gpu_s = report.step_s * row.replicas
        self._count_epochs(report.epoch or 0.0)
        return LossPoint(steps, self.epoch, loss, self.recent, self.largest, self.gpu_s)

    def _count_epochs(self, epoch: float) -> None:
        if epoch <= self.epoch:
            return
        if self.epoch_began is not None:
            self.epoch_steps = (self.steps - self.epoch_began) / (epoch - self.epoch)
        self.epoch, self.epoch_began = epoch, self.steps


# Epochs as jobs report them: which have begun, at which batch size, and how long they take.

# How far off, in samples for the time, declared epochs must be before what was measured counts.
CALIBRATE = 0.4


def follow_epochs(job: Job, seen: EpochsSoFar | None, report: Report) -> EpochsSoFar | None:
    """A job's epochs as observed after one more report; None if there is nothing to observe.

    Epochs that passed since the last report are taken for ones at the batch size known then. A job
    that went back to a checkpoint is not told twice.
    """
    if report.epoch is None or report.batch is None:
        return seen
    declared = regimes_of(job)
    if declared is None:
        return None
    batch, over = _nearest(declared, report.batch), min(int(report.epoch), declared.epochs)
    slower = _slower(declared, batch, report)
    if seen is None:
        begun = {batch: min(over + 1, declared.epochs)}
        return EpochsSoFar(over, begun, batch, slower)
    if over < seen.over:
        return seen
    begun = _count(seen, over, batch, declared.epochs)
    return EpochsSoFar(over, begun, batch, slower if report.step_s else seen.slower)


def _count(seen: EpochsSoFar, over: int, batch: int, epochs: int) -> dict[int, int]:
    begun = dict(seen.begun)
    if over == seen.over:  # the epoch under way goes on at the batch it has now
        _move(begun, seen.batch, -1)
    else:
        _move(begun, seen.batch, over - seen.over - 1)
    if over < epochs or over == seen.over:
        _move(begun, batch, 1)
    return begun


def _move(begun: dict[int, int], batch: int, by: int) -> None:
    begun[batch] = begun.get(batch, 0) + by
    if begun[batch] <= 0:
        del begun[batch]


def _nearest(declared: Regimes, batch: float) -> int:
    """The declared batch size that one reported is closest to."""
    return min(declared.epoch_s, key=lambda declared_batch: abs(declared_batch - batch))


def _slower(declared: Regimes, batch: int, report: Report) -> float:
    """Return how many times as long as declared an epoch takes, where that is much."""
    if not report.step_s or not report.batch or declared.samples <= 0.0:
        return 1.0
    measured = declared.samples / report.batch * report.step_s
    ratio = measured / declared.epoch_s[batch]
    return ratio if abs(1.0 / ratio - 1.0) > CALIBRATE else 1.0
