"""Ended jobs as rows of numbers, for models that are fitted again from time to time.

Words (user, tenant, name) become the mean length of the ends before that share them: a row that
knew its own end, or later ones, would tell it to the model. The rest is GPUs and submission time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.knowledge.prediction import DueFit
from weft.core.model.job import Job, name_of
from weft.core.state.cells import Floats
from weft.predict.by_job import Fitted

MOST = 3_000  # ends that a model is fitted to, the newest
FEWEST = 100
DAY_S = 86_400.0
LATEST_S = 253_402_300_799.0  # the last second of the year 9999

Words = tuple[str, str, str]
Row = tuple[Words, float, float, float]  # words, GPUs, when submitted, length


class Encoding:
    """Counts and sums of lengths by position and word; position 0 is of all."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, str], tuple[int, float]] = {}

    def add(self, words: Words, length: float) -> None:
        for key in enumerate(("", *words)):
            count, total = self._sums.get(key, (0, 0.0))
            self._sums[key] = count + 1, total + length

    def row(self, words: Words, gpus: float, at: float) -> Floats:
        """Numbers of one job; a word that few share is drawn to the mean of all."""
        count, total = self._sums.get((0, ""), (1, 0.0))
        overall = total / count
        means = [self._mean(key, overall) for key in enumerate(words, 1)]
        when = datetime.fromtimestamp(min(max(at, 0.0), LATEST_S), UTC)
        calendar = (when.month, when.day, when.hour, when.minute, when.weekday())
        return np.array([*means, gpus, *calendar], dtype=float)

    def save(self) -> Any:
        return [[*key, *sums] for key, sums in self._sums.items()]

    @classmethod
    def load(cls, saved: Any) -> Encoding:
        """The encoding that `save` wrote."""
        encoding = cls()
        encoding._sums = {(int(p), str(w)): (int(n), float(t)) for p, w, n, t in saved}
        return encoding

    def _mean(self, key: tuple[int, str], otherwise: float) -> float:
        count, total = self._sums.get(key, (0, 0.0))
        return (total + otherwise) / (count + 1)


class PastEnds:
    """The newest ends, and whether it is time to fit again; `label` is whose they are."""

    def __init__(self, refresh_days: float, label: str = "") -> None:
        if not refresh_days > 0.0:
            raise InvalidConfig(f"{label}: refresh_days={refresh_days:g} must be above 0")
        self._every_s = refresh_days * DAY_S
        self._rows: list[Row] = []
        self._seen = 0  # ends
        self._fitted = (0, 0.0)  # ends at the last fit, and when that was

    def add(self, job: Job, length: float, at: float) -> bool:
        """One more end; whether a model is due: at the first hundred, then every so many days."""
        self._rows.append((words_of(job), gpus_of(job), job.submitted, length))
        self._seen += 1
        del self._rows[: -2 * MOST]
        ends, when = self._fitted
        due = self._seen >= FEWEST and (not ends or at >= when + self._every_s)
        if due:
            self._fitted = (self._seen, at)
        return due

    @property
    def fitted(self) -> int:
        """The number of jobs that had ended when a model was due last; 0 before the first."""
        return self._fitted[0]

    def rows(self) -> list[Row]:
        """The rows that the model is made from."""
        return self._rows[: len(self._rows) - (self._seen - self.fitted)][-MOST:]

    def save(self) -> Any:
        """Everything: equal ends make equal models."""
        return {"rows": self._rows, "seen": self._seen, "fitted": self._fitted}

    def load(self, saved: Any) -> None:
        self._rows = [
            ((str(a), str(b), str(c)), float(gpus), float(at), float(length))
            for (a, b, c), gpus, at, length in saved["rows"]
        ]
        ends, when = saved["fitted"]
        self._seen, self._fitted = int(saved["seen"]), (int(ends), float(when))


class Savable(Protocol):
    """A model that is kept in plain values."""

    def save(self) -> Any:
        """Return the state as values that JSON has."""
        ...


def encode_rows(rows: Sequence[Row]) -> tuple[Encoding, Floats, Floats]:
    """Encoding of all, rows x features, lengths."""
    encoding, x = Encoding(), []
    for words, gpus, at, length in rows:
        x.append(encoding.row(words, gpus, at))
        encoding.add(words, length)
    return encoding, np.array(x), np.array([row[3] for row in rows])


def fit_rows(
    rows: Sequence[Row], ends: int, fit: Callable[[Floats, Floats], Savable]
) -> dict[str, Any]:
    """Encoding and model, in plain values."""
    encoding, x, y = encode_rows(rows)
    return {"ends": ends, "encoding": encoding.save(), "model": fit(x, y).save()}


def words_of(job: Job) -> Words:
    """Return the words that describe a job: its user, tenant and name."""
    named = job.launch.name if job.launch is not None else ""
    named = named or job.model or job.app or ("" if job.launch is None else name_of(job))
    return job.owner, job.tenant, named.casefold()


def gpus_of(job: Job) -> float:
    """GPUs that it asks for, parts of one counted as such."""
    return job.demand.gpus * job.demand.share


class FittedToEnds(Fitted, ABC):
    """Estimates by a model of the last ends, made again every `refresh_days` days."""

    refresh_days: float
    label: str

    def __post_init__(self) -> None:
        super().__init__()
        self._past = PastEnds(self.refresh_days, self.label)

    @property
    @abstractmethod
    def _fitter(self) -> Callable[[Floats, Floats], Savable]:
        """The function that makes a model of rows and lengths."""

    def _fit(self) -> DueFit:
        ends = self._past.fitted
        return DueFit(ends, partial(fit_rows, self._past.rows(), ends, self._fitter))
