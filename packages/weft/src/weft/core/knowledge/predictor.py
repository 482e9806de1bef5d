"""Predictions of how long jobs will still take: the questions that every predictor answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.learning import Learning
from weft.core.knowledge.prediction import INTERVAL, Basis, Calibration, Fits, Risk
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.frozen import frozen


@frozen
class PredictorNeeds:
    """The inputs that a predictor needs: facts of a simulation, by name, and a hint of jobs.

    Facts are `truth`, true seconds left, `lengths`, true lengths, and `seed`. A predictor that asks
    for a `hint` knows nothing of jobs without it.
    """

    facts: tuple[str, ...] = ()
    hint: str = ""


class Predictor(Learning, Protocol):
    """Predicts how long jobs will still take, as far as can be known.

    Seconds are executed seconds on the GPUs that a job asked for, given what it has executed so
    far. `PointPredictor` makes one of a predictor that says a single number.
    """

    @property
    def asks(self) -> PredictorNeeds:
        """The inputs that it needs."""
        ...

    @property
    def label(self) -> str:
        """The name that results print; says whether it is the truth."""
        ...

    @property
    def fits(self) -> Fits | None:
        """The models that it fits from time to time; None where to learn is all there is to do."""
        ...

    def remaining(self, table: JobTable, now: float) -> Floats:
        """Estimated seconds left of each row; infinite where nothing is known."""
        ...

    def quantiles(self, table: JobTable, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        """Rows x p: seconds left that a part `p` of such jobs stay within."""
        ...

    def mean(self, table: JobTable, now: float) -> Floats:
        """Expected seconds left of each row; infinite where nothing is known."""
        ...

    def ranges(self, table: JobTable, now: float) -> Floats:
        """Rows x 3: from, about, to of a range that should hold for 80 % of jobs."""
        ...

    def draw(self, table: JobTable, now: float, rng: np.random.Generator) -> Floats:
        """One possible future: seconds left of each row; infinite where nothing is known."""
        ...

    def index(self, table: JobTable, now: float) -> Floats:
        """Gittins index of each row: the highest chance to end per second of execution."""
        ...

    def index_at(self, table: JobTable, now: float, attained: Floats) -> Floats:
        """The index once each row has executed for that many seconds, rows x times."""
        ...

    def known_lengths(self, table: JobTable, now: float) -> Floats:
        """Seconds that rows run in total, where one number is all it says; infinite elsewhere."""
        ...

    def risk(self, job: Job) -> Risk:
        """The chance that a job fails, by the last ends alike."""
        ...

    def basis(self, job: Job) -> Basis:
        """The jobs that a prediction of this job is made from."""
        ...

    def scores(self) -> Calibration:
        """Scores of its predictions, measured as jobs ended."""
        ...

    def note_submitted(self, job: Job, now: float) -> None:
        """A job was submitted: what is predicted of it now is scored when it ends."""
        ...

    def learn(self, ended: Ended) -> None:
        """A job ended, in whatever way; called once per job, in the order of the log."""
        ...
