"""Trees over the last ends of jobs alike, beside what jobs alike took."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from math import isnan, log, log1p, nan
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import InvalidConfig, bad_values
from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import INTERVAL, LEAST_S, DueFit, Fits
from weft.core.model.job import Job, JobId
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.predict.alike.predictor import Alike, Predicted
from weft.predict.calibration import LANDMARKS_S, LEVELS, age_class, score
from weft.predict.past_ends import LATEST_S, gpus_of
from weft.predict.traits import TraitGroup, group_of

KEPT = 50  # ends of each size, user and program
FEW, SOME = 5, 20
MOST_KEYS = 20_000

Row = tuple[float, ...]


class RecentEnds:
    """The last ends of each size, user and program, and when a size was last submitted."""

    def __init__(self) -> None:
        self._ends: dict[str, deque[float]] = {}  # logarithms of seconds, newest last
        self._submitted: dict[str, float] = {}

    def row(self, job: Job) -> Row:
        """GPUs, time, lengths of the last ends of all, its size, user and program; nan if none."""
        size, user, program = keys_of(job)
        when = datetime.fromtimestamp(min(max(job.submitted, 0.0), LATEST_S), UTC)
        gap_s = max(job.submitted - self._submitted.get(size, nan), 0.0)
        return (
            gpus_of(job),
            float(when.hour),
            float(when.weekday()),
            log1p(gap_s),
            *self._lengths(""),
            *self._lengths(size),
            *self._lengths(user),
            *self._lengths(program),
        )

    def count(self, job: Job) -> int:
        """Known ends of its program; 0 if there are none."""
        program = keys_of(job)[2]
        return len(self._ends.get(program, ())) if program else 0

    def note_submitted(self, job: Job) -> None:
        self._submitted[keys_of(job)[0]] = job.submitted

    def add(self, job: Job, seconds: float) -> None:
        for key in ("", *keys_of(job)):
            ends = self._ends.pop(key, None) or deque(maxlen=KEPT)
            ends.append(log(max(seconds, 1.0)))
            self._ends[key] = ends  # the last that was touched
        while len(self._ends) > MOST_KEYS:
            del self._ends[next(iter(self._ends))]

    def save(self) -> Any:
        return [{key: [*ends] for key, ends in self._ends.items()}, self._submitted]

    def load(self, saved: Any) -> None:
        ends, submitted = saved
        self._ends = {str(key): deque(map(float, of), maxlen=KEPT) for key, of in ends.items()}
        self._submitted = {str(size): float(at) for size, at in submitted.items()}

    def _lengths(self, key: str) -> Iterator[float]:
        """The last, the mean of few and of all that are kept, and the longest of some."""
        ends: Sequence[float] = tuple(self._ends.get(key, ()))
        if not ends:
            yield from (nan, nan, nan, nan)
            return
        few = ends[-FEW:]
        yield from (ends[-1], sum(few) / len(few), sum(ends) / len(ends), max(ends[-SOME:]))


def keys_of(job: Job) -> tuple[str, str, str]:
    """Size, user and program, each with its name in front."""
    launch = job.launch
    program = group_of(launch) if launch is not None and launch.command else job.model or job.app
    return f"gpus {gpus_of(job):g}", f"user {job.owner}", program and f"program {program}"


FEWEST = 100  # ends for the first model
GROWN = 1.2  # times as many ends: it is fitted again
DAY_S = 86_400.0
SIGMAS = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
CLASS = "learned/0"  # of its scores


@dataclass
class Learned(Alike):
    """`alike`, and boosted trees where few ends of a job's own program are known.

    The trees know the GPUs, the hour, and how long the last jobs of all, of that size, user and
    program took. n ends of its program give `alike` n / (n + `trust`) of the say. The model is
    fitted to the last `most` ends, first to 100, then with a fifth more or after `refresh_days`
    days, by scikit-learn (`pip install 'weft[learn]'`), on a service in a process of its own.
    """

    trust: float = 10.0
    refresh_days: float = 7.0
    most: int = 20_000

    label = "learned"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.trust >= 0.0 and self.refresh_days > 0.0 and self.most >= FEWEST):
            raise bad_values(
                "learned", self, "trust refresh_days most",
                f"trust is 0 or more, refresh_days above 0, most {FEWEST} or more",
            )  # fmt: skip
        if find_spec("sklearn") is None:
            raise InvalidConfig(
                "predictor learned: scikit-learn is not installed", hint="pip install 'weft[learn]'"
            )
        self.aside = False
        self._recent = RecentEnds()
        self._open: dict[JobId, Row] = {}  # of jobs that have not ended
        self._past: list[tuple[Row, float]] = []
        self._fitted = (0, 0.0)  # ends when a model was due last, and when that was
        self._ended = 0
        self._due = False
        self._values: Any = None
        self._forest: Forest | None = None
        self._predicted: dict[tuple[JobId, int], Floats] = {}

    # ---- what is asked

    def mean(self, table: JobTable, now: float) -> Floats:
        """Mean of the log-normal distribution that has these quantiles."""
        left = super().mean(table, now)
        if self._forest is None or not len(table):
            return left
        low, middle, high = self._model_left(table, now).T
        sigma = np.log(high / low) / (SIGMAS[-1] - SIGMAS[0])
        return self._blend(table, left, middle * np.exp(sigma**2 / 2.0))

    def quantiles(self, table: JobTable, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        left = super().quantiles(table, now, p)
        if self._forest is None or not len(table):
            return left
        sigmas = np.array([NormalDist().inv_cdf(chance) for chance in p])
        model = np.array([_interpolate(row, sigmas) for row in self._model_left(table, now)])
        return self._blend(table, left, model)

    def ranges(self, table: JobTable, now: float) -> Floats:
        """Quantiles as wide as they had to be so far."""
        if self._forest is None:
            return super().ranges(table, now)
        alpha = self._scores.outside_share(CLASS)
        return self.quantiles(table, now, (alpha / 2.0, 0.5, 1.0 - alpha / 2.0))

    def draw(self, table: JobTable, now: float, rng: np.random.Generator) -> Floats:
        if self._forest is None or not len(table):
            return super().draw(table, now, rng)
        low, middle, high = np.log(self.quantiles(table, now)).T
        sigma = (high - low) / (SIGMAS[-1] - SIGMAS[0])
        left: Floats = np.exp(middle + sigma * rng.standard_normal(len(table)))
        return np.maximum(left, LEAST_S)

    def _model_left(self, table: JobTable, now: float) -> Floats:
        """Rows x levels: seconds left by the trees alone."""
        ran = table.ran(now)
        ages = [age_class(seconds) for seconds in ran.tolist()]
        wanted = [(job.id, age) for job, age in zip(table.jobs, ages, strict=True)]
        new = [at for at, key in enumerate(wanted) if key not in self._predicted]
        if new and self._forest is not None:
            rows = [(*self._row(table.jobs[at]), np.log1p(LANDMARKS_S[ages[at]])) for at in new]
            predicted = np.exp(self._forest.predict(np.array(rows)))
            self._predicted.update(zip([wanted[at] for at in new], predicted, strict=True))
        since = ran - np.array(LANDMARKS_S)[ages]
        left: Floats = np.array([self._predicted[key] for key in wanted]) - since[:, None]
        # What a job has outlived is as long again as it was beyond the last age it came to.
        least: Floats = np.maximum(since, LEAST_S)[:, None] * np.exp(SIGMAS)
        return np.maximum(left, least)

    def _row(self, job: Job) -> Row:
        return self._open.get(job.id) or self._recent.row(job)

    def _blend(self, table: JobTable, alike: Floats, model: Floats) -> Floats:
        """By factors, and by how many ends of a job's program are known."""
        ends = np.array([self._recent.count(job) for job in table.jobs], dtype=float)
        part = ends / np.maximum(ends + self.trust, 1e-9)
        part = part.reshape(-1, *[1] * (alike.ndim - 1))
        known = np.where(np.isfinite(alike), alike, model)
        return np.maximum(np.exp(part * np.log(known) + (1.0 - part) * np.log(model)), LEAST_S)

    # ---- what happens

    def note_submitted(self, job: Job, now: float) -> None:
        """Keep what is known now, and what it makes of it."""
        row = self._recent.row(job)
        self._recent.note_submitted(job)
        super().note_submitted(job, now)
        self._open[job.id] = row
        if self._forest is None:
            self._noted.pop(job.id, None)
            return
        predicted = np.exp(self._forest.predict(np.array([(*row, 0.0)])))[0]
        alpha = self._scores.outside_share(CLASS)
        sigmas = np.array([NormalDist().inv_cdf(p) for p in (alpha / 2.0, 1.0 - alpha / 2.0)])
        low, high = _interpolate(predicted, sigmas).tolist()
        self._noted[job.id] = Predicted(CLASS, predicted.tolist(), low, high)

    def learn(self, ended: Ended) -> None:
        """An end is a row for the next model, with what was known at the job's submission."""
        row = self._open.pop(ended.job.id, None)
        for age in range(len(LANDMARKS_S)):
            self._predicted.pop((ended.job.id, age), None)
        super().learn(ended)
        if ended.censored or (ended.ran <= 0.0 and not ended.failed):
            return
        self._recent.add(ended.job, ended.length)
        if row is None:
            return
        self._past.append((row, ended.length))
        del self._past[: -2 * self.most]
        self._ended += 1
        ends, when = self._fitted
        first = not ends and self._ended >= FEWEST
        old = ended.at >= when + self.refresh_days * DAY_S or self._ended >= GROWN * ends
        if first or (ends and old):
            self._fitted = self._ended, ended.at
            self._due = True
            if not self.aside:
                self.adopt(self._fit().make())

    def _score(
        self, job: Job, levels: tuple[TraitGroup, ...], noted: Predicted | None, length: float
    ) -> None:
        """Score what was said at submission; before there is a model, what `alike` says."""
        if self._forest is None:
            super()._score(job, levels, noted, length)
        elif noted is not None:
            scored = score(noted.quantiles, (noted.low, noted.high), length)
            self._scores.add(noted.name, job.tenant, scored)

    # ---- the model

    @property
    def fits(self) -> Fits | None:  # type: ignore[override]
        return self

    def _fit(self) -> DueFit:
        ends = self._fitted[0]
        rows = self._past[: len(self._past) - (self._ended - ends)][-self.most :]
        return DueFit(ends, partial(fit, rows, ends))

    def wanted(self) -> DueFit | None:
        return self._fit() if self._due else None

    def adopt(self, model: Any) -> None:
        """Go on with it; one that became due meanwhile still is."""
        self._values, self._forest = model, Forest.load(model)
        self._predicted.clear()
        self._state += 1
        self._due = model["ends"] < self._fitted[0]

    def save(self) -> Any:
        """The memory of `alike`, the rows, and the model."""
        return {
            **super().save(),
            "recent": self._recent.save(),
            "open": [[job, *_plain(row)] for job, row in self._open.items()],
            "past": [[length, *_plain(row)] for row, length in self._past],
            "fitted": [*self._fitted, self._ended, self._due],
            "model": self._values,
        }

    def load(self, saved: Any) -> None:
        super().load(saved)
        self._recent.load(saved["recent"])
        self._open = {JobId(job): tuple(map(_number, row)) for job, *row in saved["open"]}
        self._past = [(tuple(map(_number, row)), float(length)) for length, *row in saved["past"]]
        ends, when, ended, due = saved["fitted"]
        self._fitted, self._ended = (int(ends), float(when)), int(ended)
        if saved["model"] is not None:
            self.adopt(saved["model"])
        self._due = bool(due)


def _plain(row: Row) -> list[float | None]:
    """As JSON has it, which knows no nan."""
    return [None if isnan(value) else value for value in row]


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _interpolate(row: Floats, sigmas: Floats) -> Floats:
    """Of one row: between its quantiles by factors, beyond them at the same rate."""
    logs = np.log(row)
    inner = np.interp(sigmas, SIGMAS, logs)
    below, above = (logs[1] - logs[0]) / -SIGMAS[0], (logs[2] - logs[1]) / SIGMAS[2]
    low = np.minimum(sigmas - SIGMAS[0], 0.0) * below
    high = np.maximum(sigmas - SIGMAS[2], 0.0) * above
    left: Floats = np.exp(inner + low + high)
    return left


# ---- Boosted trees as arrays: fitted with scikit-learn in one process, followed with numpy in
# another
#
# A sum of trees for each quantile of the logarithm of the seconds left. A job gives a row for
# every age that it came to (landmarking), so that one model speaks of jobs of any age.


ITERATIONS, RATE, LEAVES = 120, 0.08, 31
FARTHEST = 1e300  # a threshold that JSON has

Ints = NDArray[np.intp]


class DecisionTree(NamedTuple):
    """Nodes: rows not above the threshold, or without a number where `lost` says so, go left."""

    feature: Ints
    threshold: Floats
    lost: Ints
    left: Ints
    right: Ints
    value: Floats

    def follow(self, x: Floats) -> Floats:
        """The tree's answers for rows x features."""
        at = np.zeros(len(x), dtype=np.intp)
        rows = np.arange(len(x))
        while (inner := self.left[at] > 0).any():
            seen = x[rows, self.feature[at]]
            left = np.where(np.isnan(seen), self.lost[at] > 0, seen <= self.threshold[at])
            at = np.where(inner, np.where(left, self.left[at], self.right[at]), at)
        return self.value[at]


class Forest(NamedTuple):
    """One sum of trees for each of the levels."""

    bases: tuple[float, ...]
    trees: tuple[tuple[DecisionTree, ...], ...]

    def predict(self, x: Floats) -> Floats:
        """Rows x levels, in order: logarithms of the seconds left."""
        sums = [
            base + sum(tree.follow(x) for tree in trees)
            for base, trees in zip(self.bases, self.trees, strict=True)
        ]
        return np.sort(np.column_stack(sums), axis=1)

    @classmethod
    def load(cls, saved: Any) -> Forest:
        """Load a model from plain values, as `fit` returns them."""
        read = (np.intp, float, np.intp, np.intp, np.intp, float)
        trees = tuple(
            tuple(
                DecisionTree(*(np.array(c, t) for c, t in zip(tree, read, strict=True)))
                for tree in of
            )
            for of in saved["trees"]
        )
        return cls(tuple(map(float, saved["bases"])), trees)


def fit(rows: Sequence[tuple[Row, float]], ends: int) -> dict[str, Any]:
    """A forest in plain values from features and lengths; imports scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    x, y = spread_over_ages(rows)
    bases, trees = list[float](), list[list[Any]]()
    with threadpool_limits(1):  # sums of several threads differ from run to run
        for level in LEVELS:
            model = HistGradientBoostingRegressor(
                loss="quantile", quantile=level, max_iter=ITERATIONS, learning_rate=RATE,
                max_leaf_nodes=LEAVES, early_stopping=False, random_state=0,
            )  # fmt: skip
            model.fit(x, y)
            bases.append(float(np.ravel(model._baseline_prediction)[0]))
            trees.append([_plain_nodes(tree[0].nodes) for tree in model._predictors])
    return {"ends": ends, "bases": bases, "trees": trees}


def spread_over_ages(rows: Sequence[tuple[Row, float]]) -> tuple[Floats, Floats]:
    """A row for every age a job came to, and the logarithm of what was left then."""
    spread = [
        ((*row, np.log1p(age)), np.log(max(length - age, 1.0)))
        for row, length in rows
        for age in LANDMARKS_S
        if age == 0.0 or length > age
    ]
    return np.array([row for row, _ in spread]), np.array([left for _, left in spread])


def _plain_nodes(nodes: Any) -> list[list[float]]:
    """The columns of a tree of scikit-learn's; a leaf has no left."""
    inner = nodes["is_leaf"] == 0
    return [
        nodes["feature_idx"].astype(int).tolist(),
        np.clip(nodes["num_threshold"], -FARTHEST, FARTHEST).tolist(),
        nodes["missing_go_to_left"].astype(int).tolist(),
        np.where(inner, nodes["left"], 0).astype(int).tolist(),
        np.where(inner, nodes["right"], 0).astype(int).tolist(),
        nodes["value"].tolist(),
    ]
