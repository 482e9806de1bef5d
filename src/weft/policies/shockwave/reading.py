"""What a plan is made of: how far each job is, what it has left, how long its epochs take."""

from __future__ import annotations

from math import isfinite

import numpy as np

from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.model.job import Job
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.formulas.training.regimes import (
    Regimes,
    mean_epoch_s,
    past_seconds,
    predict_remaining,
    regimes_of,
)
from weft.frozen import frozen

UNKNOWN_S = 3600.0  # what a job is taken to have left that nothing is known of
NOTHING_SEEN = EpochsSoFar()


@frozen
class Progress:
    """One job: epochs in all and over, seconds of one, seconds behind and predicted ahead."""

    epochs: float
    over: float
    epoch_s: float
    past_s: float
    left_s: float


@frozen
class Standing:
    """The jobs of a view, as columns."""

    gangs: Floats
    submitted: Floats
    epochs: Floats
    over: Floats
    epoch_s: Floats
    past_s: Floats
    left_s: Floats


def read_standing(view: View, round_s: float, *, trusting: bool = False) -> Standing:
    """By regimes where a job declares any; of others the predictor says what is left.

    A job that is still here has its last epoch before it, whatever was counted; unless counts are
    trusted, as the authors' code does.
    """
    table = view.table
    declared = [regimes_of(job) for job in table.jobs]
    ran, left = view.ran(), np.zeros(len(table))
    if any(regimes is None for regimes in declared):
        left = view.remaining()
    rows = [
        _by_time(ran[i], left[i], round_s)
        if regimes is None
        else _by_regimes(view, job, regimes, regimes.epochs - (0 if trusting else 1))
        for i, (job, regimes) in enumerate(zip(table.jobs, declared, strict=True))
    ]
    columns = np.array([(r.epochs, r.over, r.epoch_s, r.past_s, r.left_s) for r in rows])
    epochs, over, epoch_s, past_s, left_s = columns.reshape(len(rows), 5).T
    return Standing(
        table.need.copy(), table.submitted.copy(), epochs, over, epoch_s, past_s, left_s
    )


def _by_regimes(view: View, job: Job, declared: Regimes, most: int) -> Progress:
    seen = view.training.epochs(job) if view.training is not None else None
    if seen is None:
        seen = NOTHING_SEEN
    return Progress(
        float(declared.epochs),
        float(min(seen.over, most)),
        mean_epoch_s(declared, seen),
        past_seconds(declared, seen),
        predict_remaining(declared, seen),
    )


def _by_time(ran: float, left: float, round_s: float) -> Progress:
    """A job without regimes: its rounds are its epochs."""
    left = max(float(left) if isfinite(left) else UNKNOWN_S, 1.0)
    ran = float(ran)
    return Progress((ran + left) / round_s, ran / round_s, round_s, ran, left)


# When jobs should end: what they would have had alone on their share, averaged over time.

MOMENTUM = 0.9


@frozen
class Series:
    """Targets of a job, each from the round it was set until the next one.

    `first` and `last` are rounds of the first and the last target, `value` is the last, and `area`
    the sum of those before it, each times the rounds it held.
    """

    first: int
    last: int
    value: float
    area: float = 0.0

    def append(self, at: int, value: float) -> Series:
        """One more target."""
        area = self.area + self.value * (at - self.last)
        return Series(self.first, at, value, area)

    def average(self, at: int) -> float:
        """Mostly the mean over the rounds until `at`, and a tenth the last target."""
        rounds = at - self.first
        if rounds <= 0:
            return self.value
        mean = (self.area + self.value * (at - self.last)) / rounds
        return MOMENTUM * mean + (1.0 - MOMENTUM) * self.value


def share(gpus: float, jobs: int) -> float:
    """The part of its time that each job would have a machine of its own; gangs do not count."""
    return min(1.0, gpus / jobs) if jobs else 1.0


def target(submitted: float, past_s: float, left_s: float, phi: float) -> float:
    """When a job ends that has a part `phi` of what it asks for, from its submission on."""
    return submitted + (past_s + left_s) / phi
