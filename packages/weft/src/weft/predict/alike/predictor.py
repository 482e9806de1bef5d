"""Lengths of jobs alike, in whatever way they ended, given how far a job has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from weft.core.errors import bad_values
from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import INTERVAL, LEAST_S, Basis, Calibration, Risk
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Job, JobId
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.predict.alike.many import TablePredictions
from weft.predict.alike.mixture import (
    Blend,
    Block,
    WeightedLengths,
    effective,
    mix,
    mix_sorted,
    prior,
    quantile,
)
from weft.predict.alike.rings import NO_ENDS, Rings, is_of
from weft.predict.calibration import LANDMARKS_S, Scoreboard, age_class, score
from weft.predict.traits import GROUPS, Key, TraitGroup, levels_of

LAST_ENDS = 5
SHRINK_FAILURES = 4.0
NOTHING = WeightedLengths(np.zeros(0), np.zeros(0))


class Predicted(NamedTuple):
    """The class of a prediction, its 0.1, 0.5 and 0.9 quantiles, and the range that was given."""

    name: str
    quantiles: list[float]
    low: float
    high: float


def class_name(position: int, age: int) -> str:
    """Predictions that are scored together: by the group that says most, and by age."""
    return f"{GROUPS[position]}/{age}"


class Single:
    """Asks the rings about one job at a time."""

    def __init__(self, rings: Rings, scores: Scoreboard, half: float, shrink: float) -> None:
        self._rings, self._scores = rings, scores
        self._half, self._shrink = half, shrink

    def sample(self, key: Key) -> WeightedLengths | None:
        """The ends of a group with weights; where a tenant drifts, the newest count more."""
        ring = self._rings.get(key)
        if ring is None:
            return None
        drifts = any(is_of(key, tenant) for tenant in self._scores.drifting)
        return ring.sample(self._half / 2.0 if drifts else self._half)

    def predict(
        self, levels: Sequence[TraitGroup], blocks: Sequence[Block], attained: float
    ) -> Predicted:
        """Quantiles and range of the time left of a job that has executed for `attained` s.

        `blocks` are the samples of its levels.
        """
        blended, parts = mix_sorted(blocks, attained, self._shrink)
        name = class_name(levels[parts.index(max(parts))].position, age_class(attained))
        alpha = self._scores.outside_share(name)
        p = (*INTERVAL, alpha / 2.0, 1.0 - alpha / 2.0)
        left = np.maximum(quantile(blended, p) - attained, LEAST_S)
        *quantiles, low, high = left.tolist()
        return Predicted(name, quantiles, low if low > LEAST_S else 0.0, high)

    def basis(self, levels: Sequence[TraitGroup]) -> Basis:
        if not self._rings.ends:
            return Basis()
        _, parts = self._mix(levels, 0.0)
        most = int(np.argmax(parts))
        ring = self._rings.get(levels[most].key) or NO_ENDS
        n = effective((self.sample(levels[most].key) or NOTHING).w)
        return Basis(
            levels[most].words(len(ring.lengths)), len(ring.lengths), n, parts[most], ring.newest
        )

    def risk(self, levels: Sequence[TraitGroup]) -> Risk:
        """Return the risk by the last five ends of the narrowest group, and the next's rate."""
        known = [(level, self._rings.get(level.key)) for level in levels]
        ends = [(level, ring) for level, ring in known if ring is not None]
        if not ends:
            return Risk()
        level, ring = ends[0]
        wider = ends[1][1] if len(ends) > 1 else ring
        last = ring.failed[-LAST_ENDS:]
        p = failure_chance(sum(last), len(last), sum(wider.failed) / len(wider.failed))
        lengths = [x for x, bad in zip(ring.lengths, ring.failed, strict=True) if bad][-LAST_ENDS:]
        after_s = sum(lengths) / len(lengths) if lengths else 0.0
        return Risk(p, ring.streak(), len(last), after_s, level.words(len(last)))

    def _mix(
        self, levels: Sequence[TraitGroup], attained: float
    ) -> tuple[WeightedLengths, list[float]]:
        samples = [self.sample(level.key) or NOTHING for level in levels]
        return mix(samples, attained, self._shrink, prior(attained))


def failure_chance(failed: int, count: int, wider_rate: float) -> float:
    """Of jobs whose last `count` ends alike had that many failures, in a group with this rate."""
    return (failed + SHRINK_FAILURES * wider_rate) / (count + SHRINK_FAILURES)


@dataclass
class Alike:
    """Distributions of the time left, from the last ends of jobs alike; the service's default.

    Groups from the narrowest (same user, command and GPUs) to all jobs keep their last `ring` ends,
    of which every `half` ends a sample loses half its weight. A group with n ends worth counts
    n / (n + `shrink`), the rest is left to the next wider one. What jobs have outlived is dropped
    first. `point` is what `remaining` says: the mean, the median, or `first`, for orders that stop
    no job: the mean a job of all that wait and are alike, if one of them runs first and the others
    are put off where it proves long. Before the first end it is infinite (`unknown=last`), the mean
    of a prior (`prior`) or 1 s (`first`). At most `groups` are kept.
    """

    ring: int = 200
    half: float = 20.0
    shrink: float = 4.0
    point: Literal["mean", "median", "first"] = "mean"
    unknown: Literal["first", "prior", "last"] = "last"
    groups: int = 50_000

    asks = PredictorNeeds()
    label = "alike"
    fits = None

    def __post_init__(self) -> None:
        if self.ring < 2 or self.groups < 10:
            raise bad_values("alike", self, "ring groups", "ring is 2 or more, groups 10 or more")
        if not (self.half > 0.0 and self.shrink >= 0.0):
            raise bad_values("alike", self, "half shrink", "half is above 0, shrink is 0 or more")
        self._rings, self._scores = Rings(self.ring, self.groups), Scoreboard()
        self._noted: dict[JobId, Predicted] = {}
        self._state = 0
        self._derive()

    def _derive(self) -> None:
        self._single = Single(self._rings, self._scores, self.half, self.shrink)
        self._many = TablePredictions(self._rings, self._single.sample, self.shrink)
        self._fresh: tuple[int, dict[tuple[Key, ...], Predicted]] = (self._state, {})

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_single", "_many", "_fresh")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self._derive()

    # ---- what is asked

    def remaining(self, table: JobTable, now: float) -> Floats:
        """Each row's time left as `point` has it."""
        if self.point == "mean" or self._knows_nothing:
            return self.mean(table, now)
        if self.point == "first":
            left = np.minimum(self.mean(table, now), self._many.mean_of_first(table, now))
            return np.maximum(left, LEAST_S)
        return self.quantiles(table, now, (0.5,))[:, 0]

    @property
    def _knows_nothing(self) -> bool:
        return not self._rings.ends and self.unknown != "prior"

    def mean(self, table: JobTable, now: float) -> Floats:
        """Expected seconds left of each row; before any end as `unknown` says."""
        if self._knows_nothing:
            return np.full(len(table), LEAST_S if self.unknown == "first" else np.inf)
        left = self._many.each(table, now, "mean", lambda b: b.mean_left()[:, None], self._state)
        return np.maximum(left[:, 0], LEAST_S)

    def quantiles(self, table: JobTable, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        p = tuple(p)
        left = self._many.each(table, now, p, lambda b: b.quantiles_left(p), self._state)
        return np.maximum(left, LEAST_S)

    def ranges(self, table: JobTable, now: float) -> Floats:
        """Rows x 3: from, about, to; as wide as ranges of the same class had to be."""
        left = self._many.each(table, now, "ranges", self._ranges, self._state)
        return np.maximum(left, LEAST_S)

    def index(self, table: JobTable, now: float) -> Floats:
        left = self._many.each(table, now, "index", lambda b: b.index()[:, None], self._state)
        return left[:, 0]

    def index_at(self, table: JobTable, now: float, attained: Floats) -> Floats:  # noqa: ARG002
        return self._many.index_at(table, attained)

    def known_lengths(self, table: JobTable, now: float) -> Floats:  # noqa: ARG002 - of the protocol
        return np.full(len(table), np.inf)

    def draw(self, table: JobTable, now: float, rng: np.random.Generator) -> Floats:
        u = rng.random(len(table))
        if not len(table):
            return u
        blend, groups, attained = self._many.blend(table, now)
        left = np.minimum(blend.draw_left(u), groups.limits_s - attained)
        return np.maximum(left, LEAST_S)

    def risk(self, job: Job) -> Risk:
        """The chance to fail, by the last five ends of the narrowest group that has any."""
        return self._single.risk(levels_of(job))

    def basis(self, job: Job) -> Basis:
        """The group that says most about this job."""
        return self._single.basis(levels_of(job))

    def scores(self) -> Calibration:
        return self._scores.report()

    # ---- what happens

    def note_submitted(self, job: Job, now: float) -> None:  # noqa: ARG002 - of the protocol
        """Keep what is predicted now, to be scored when the job ends; for all alike it is one."""
        if not self._rings.ends:
            return
        levels = levels_of(job)
        keys = tuple(level.key for level in levels)
        if self._fresh[0] != self._state:
            self._fresh = self._state, {}
        known = self._fresh[1]
        if keys not in known:
            known[keys] = self._single.predict(levels, self._many.group_samples(levels), 0.0)
        self._noted[job.id] = known[keys]

    def learn(self, ended: Ended) -> None:
        """An end of whatever kind; one that was not the job's own says nothing of its length."""
        job = ended.job
        noted = self._noted.pop(job.id, None)
        self._many.forget(job)
        if ended.censored or (ended.ran <= 0.0 and not ended.failed):
            return
        levels, length = levels_of(job), ended.length
        if self._rings.ends:
            self._score(job, levels, noted, length)
        keys = tuple(level.key for level in levels)
        self._rings.add(keys, length, ended.failed, ended.at)
        if self._scores.score_end(job.tenant):
            self._rings.change_all_of(job.tenant)
        self._state += 1

    def save(self) -> Any:
        """Rings, scores and open predictions."""
        return {
            "alike": self._rings.save(),
            "scores": self._scores.save(),
            "noted": [[job, *noted] for job, noted in self._noted.items()],
        }

    def load(self, saved: Any) -> None:
        noted = {JobId(job): Predicted(*values) for job, *values in saved["noted"]}
        self._rings.load(saved["alike"])
        self._scores.load(saved["scores"])
        self._noted = noted
        self._derive()

    def _score(
        self, job: Job, levels: tuple[TraitGroup, ...], noted: Predicted | None, length: float
    ) -> None:
        """The prediction at submission, and those of each age that the job came to.

        Ages are scored by what is known when the job ends, short of its own end.
        """
        ages = [a for a in LANDMARKS_S if 0.0 < a < length]
        blocks = self._many.group_samples(levels) if ages else ()
        predicted = {age: self._single.predict(levels, blocks, age) for age in ages}
        if noted is not None:
            predicted = {0.0: noted, **predicted}
        for age, prediction in predicted.items():
            scored = score(prediction.quantiles, (prediction.low, prediction.high), length - age)
            self._scores.add(prediction.name, job.tenant, scored)

    def _ranges(self, blend: Blend) -> Floats:
        """Quantiles at the width that each row's class needs."""
        positions = np.argmax(blend.parts, axis=1).tolist()
        ages = map(age_class, blend.attained.tolist())
        names = [class_name(*position) for position in zip(positions, ages, strict=True)]
        alphas = np.array([self._scores.outside_share(name) for name in names])
        low, high = blend.draw_left(alphas / 2.0), blend.draw_left(1.0 - alphas / 2.0)
        return np.stack([low, blend.draw_left(np.full(len(alphas), 0.5)), high], axis=1)
