"""What is learnt of real trainings from what `weft.train` reports: losses by step and by epoch.

The laws are those of the simulator (`weft.perf.training.learner`); here the reports are those of
real jobs, whose losses scatter from batch to batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from weft.core.cluster import Cluster
from weft.core.model import Job, JobId
from weft.perf.goodput.live import row_of
from weft.perf.training.learner import Learner
from weft.perf.training.loss import LEAST_POINTS, epochs_left

SMOOTH = 0.3  # the part that a new loss has in the smoothed one


@dataclass(slots=True)
class Followed:
    """A training so far, by its reports.

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


class LiveTraining(Learner):
    """Beliefs of trainings on a real cluster."""

    def __init__(self) -> None:
        super().__init__(Cluster(()))
        self._followed: dict[JobId, Followed] = {}

    def observe(self, job: Job, kind: str, values: Mapping[str, float]) -> None:
        """Take in a report of `weft.train`, or one that speaks of iterations itself."""
        if "steps" in values and "loss" in values and "iteration" not in values:
            values = _taken(self._followed.setdefault(job.id, Followed()), values)
        super().observe(job, kind, values)

    def forget(self, job: Job) -> None:
        """A job has left."""
        super().forget(job)
        self._followed.pop(job.id, None)

    def seconds_left(self, job: Job) -> float | None:
        """By the epochs that its loss still needs; None before three of them were seen."""
        one, heard = self._followed.get(job.id), self._heard.get(job.id)
        if one is None or heard is None or len(heard.epochs) <= LEAST_POINTS:
            return None
        if one.epoch_steps <= 0.0 or one.gpu_s <= 0.0:
            return None
        if heard.left_of != len(heard.epochs):
            # The epoch under way has begun only: its loss is that of its beginning.
            heard.left, heard.left_of = epochs_left(heard.epochs[:-1]), len(heard.epochs)
        return max(heard.left, 1.0) * one.epoch_steps * one.gpu_s / job.demand.gpus


def _taken(one: Followed, values: Mapping[str, float]) -> dict[str, float]:
    """The report in the words of the simulator's; empty for one that tells nothing new."""
    row, steps = row_of(values), values["steps"]
    if row is None or not isfinite(values["loss"]) or steps <= one.steps:
        return {}
    before, loss = one.loss, values["loss"]
    if one.steps >= 0.0:
        loss = (1.0 - SMOOTH) * before + SMOOTH * loss
        one.recent = abs(before - loss) / (steps - one.steps)
        one.largest = max(one.largest, one.recent)
    one.loss, one.steps = loss, steps
    one.gpu_s = values["step_s"] * row.replicas
    _count_epochs(one, values.get("epoch", 0.0))
    return {
        "iteration": steps,
        "epoch": one.epoch,
        "loss": loss,
        "recent": one.recent,
        "largest": one.largest,
        "iteration_s": values["step_s"],
        "gpus": float(row.replicas),
    }


def _count_epochs(one: Followed, epoch: float) -> None:
    if epoch <= one.epoch:
        return
    if one.epoch_began is not None:
        one.epoch_steps = (one.steps - one.epoch_began) / (epoch - one.epoch)
    one.epoch, one.epoch_began = epoch, one.steps
