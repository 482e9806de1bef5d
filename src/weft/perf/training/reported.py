"""Losses as jobs report them: by iterations, or of single batches with all their scatter."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from weft.core.events.report import Report
from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.model.job import Job
from weft.formulas.training.regimes import Regimes, regimes_of
from weft.perf.goodput.belief import row_of

SMOOTH = 0.3  # the part that a new loss has in the smoothed one


class Loss(NamedTuple):
    """A loss after an iteration, and its changes in one: the last one and the largest.

    `gpu_s` is one iteration's time times its GPUs, None where unknown.
    """

    iteration: float
    epoch: float
    loss: float
    recent: float
    largest: float
    gpu_s: float | None


def follow_loss(report: Report) -> Loss | None:
    """The loss of a job that follows it itself; None where it reports none."""
    if report.iteration is None or report.loss is None:
        return None
    seconds = report.iteration_s
    return Loss(
        report.iteration,
        report.iteration if report.epoch is None else report.epoch,
        report.loss,
        report.loss_change or 0.0,
        report.loss_change_most or 0.0,
        None if seconds is None else seconds * (report.gpus or 1.0),
    )


@dataclass(slots=True)
class Smoothed:
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

    def take(self, report: Report) -> Loss | None:
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
        return Loss(steps, self.epoch, loss, self.recent, self.largest, self.gpu_s)

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
    """What is seen of a job's epochs after one more report; None where there is nothing to see.

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
    """How many times as long as declared an epoch takes, where that is much."""
    if not report.step_s or not report.batch or declared.samples <= 0.0:
        return 1.0
    measured = declared.samples / report.batch * report.step_s
    ratio = measured / declared.epoch_s[batch]
    return ratio if abs(1.0 / ratio - 1.0) > CALIBRATE else 1.0
