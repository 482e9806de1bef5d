"""Predictions about jobs beyond a number: how sure they are, and on what they build.

`PointPredictor` turns a predictor of one number per job into one of distributions, so that a policy
that reads quantiles never asks which kind it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.frozen import frozen

INTERVAL = (0.1, 0.5, 0.9)
POINT_SIGMA = 0.5  # log-normal error that a bare number is taken to have
LEAST_S = 1.0


@frozen
class Risk:
    """The chance that a job fails: `streak` of its last `count` ends alike were failures in a row.

    `after_s` is how long those failures ran on average, `key` what "alike" means here.
    """

    p_fail: float = 0.0
    streak: int = 0
    count: int = 0
    after_s: float = 0.0
    key: str = ""


@frozen
class Basis:
    """The jobs that a prediction is made from: `level` names the narrowest group that says much.

    `count` jobs of that group are known, worth `effective` equally recent ones; `weight` is their
    part in the prediction. `newest_end` is when the last of them ended, `model` the digest of a
    fitted model that takes part.
    """

    level: str = ""
    count: int = 0
    effective: float = 0.0
    weight: float = 0.0
    newest_end: float = 0.0
    model: str = ""


@frozen
class ClassScore:
    """The part of 80 % ranges of one class that was right, and how wide they are."""

    name: str
    count: int
    coverage: float
    pinball: float
    log10_error: float
    alpha: float


@frozen
class Calibration:
    """Scores of predictions so far: overall, and by class (basis and age of the job)."""

    count: int = 0
    coverage: float = float("nan")
    pinball: float = float("nan")
    log10_error: float = float("nan")
    drifting: tuple[str, ...] = ()
    classes: tuple[ClassScore, ...] = field(default=())


class PointPredictor(ABC):
    """Distributions around `remaining`, for predictors that say one number per job."""

    __slots__ = ()

    @property
    def fits(self) -> Fits | None:
        return None

    @abstractmethod
    def remaining(self, table: JobTable, now: float) -> Floats:
        """Estimated seconds left of each row; infinite where nothing is known."""

    def quantiles(self, table: JobTable, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        """Rows x p: the number, with a log-normal error; infinite where nothing is known."""
        factors = np.exp(POINT_SIGMA * np.array([NormalDist().inv_cdf(chance) for chance in p]))
        return np.maximum(self.remaining(table, now), LEAST_S)[:, None] * factors

    def mean(self, table: JobTable, now: float) -> Floats:
        return np.maximum(self.remaining(table, now), LEAST_S)

    def ranges(self, table: JobTable, now: float) -> Floats:
        return self.quantiles(table, now)

    def draw(self, table: JobTable, now: float, rng: np.random.Generator) -> Floats:
        noise = np.exp(POINT_SIGMA * rng.standard_normal(len(table)))
        return np.maximum(self.remaining(table, now), LEAST_S) * noise

    def index(self, table: JobTable, now: float) -> Floats:
        return 1.0 / np.maximum(self.remaining(table, now), LEAST_S)

    def index_at(self, table: JobTable, now: float, attained: Floats) -> Floats:
        return 1.0 / np.maximum(self.known_lengths(table, now)[:, None] - attained, LEAST_S)

    def known_lengths(self, table: JobTable, now: float) -> Floats:
        return table.ran(now) + self.remaining(table, now)

    def risk(self, job: Job) -> Risk:  # noqa: ARG002
        """Return no risk: nothing is known about failures."""
        return Risk()

    def basis(self, job: Job) -> Basis:  # noqa: ARG002
        """Return nothing: this predictor has no basis to show."""
        return Basis()

    def scores(self) -> Calibration:
        return Calibration()

    def note_submitted(self, job: Job, now: float) -> None:  # noqa: B027 - keeping is optional
        """Do nothing: nothing is kept for scoring."""


class DueFit(NamedTuple):
    """A model that is due: `make` gives it in plain values, in any process.

    `ends` is how many jobs had ended.
    """

    ends: int
    make: Callable[[], Any]


class Fits(Protocol):
    """The models that a predictor fits from time to time, which takes longer than a decision may.

    If `aside` is set someone else asks what is `wanted`, makes it and has it adopted. If not, it
    is made as soon as it is due.
    """

    aside: bool

    def wanted(self) -> DueFit | None:
        """The model that is due; None while there is none."""
        ...

    def adopt(self, model: Any) -> None:
        """Use a model that another process has fitted."""
        ...
