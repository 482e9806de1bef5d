"""Epochs as jobs report them: which have begun, at which batch size, and how long they take."""

from __future__ import annotations

from weft.core.events.report import Report
from weft.core.model.job import Job
from weft.formulas.training.regimes import EpochsSeen, Regimes, regimes_of

# How far off, in samples for the time, declared epochs must be before what was measured counts.
CALIBRATE = 0.4


def follow_epochs(job: Job, seen: EpochsSeen | None, report: Report) -> EpochsSeen | None:
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
        return EpochsSeen(over, begun, batch, slower)
    if over < seen.over:
        return seen
    begun = _count(seen, over, batch, declared.epochs)
    return EpochsSeen(over, begun, batch, slower if report.step_s else seen.slower)


def _count(seen: EpochsSeen, over: int, batch: int, epochs: int) -> dict[int, int]:
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
