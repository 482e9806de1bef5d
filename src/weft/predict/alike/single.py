"""What is predicted of one job: for scores, words and warnings, where speed matters little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.core.knowledge.prediction import INTERVAL, LEAST_S, Basis, Risk
from weft.predict.alike.mixture import Block, Sample, effective, mix, mix_sorted, prior, quantile
from weft.predict.alike.rings import NO_ENDS, Rings, is_of
from weft.predict.calibration import Scoreboard, age_class
from weft.predict.traits import GROUPS, Key, Level

LAST_ENDS = 5
SHRINK_FAILURES = 4.0
NOTHING = Sample(np.zeros(0), np.zeros(0))


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

    def sample(self, key: Key) -> Sample | None:
        """The ends of a group with weights; where a tenant drifts, the newest count more."""
        ring = self._rings.get(key)
        if ring is None:
            return None
        drifts = any(is_of(key, tenant) for tenant in self._scores.drifting)
        return ring.sample(self._half / 2.0 if drifts else self._half)

    def predict(
        self, levels: Sequence[Level], blocks: Sequence[Block], attained: float
    ) -> Predicted:
        """Quantiles and range of the time left of a job that has executed for `attained` s.

        `blocks` are the samples of its levels.
        """
        blended, parts = mix_sorted(blocks, attained, self._shrink)
        name = class_name(levels[parts.index(max(parts))].position, age_class(attained))
        alpha = self._scores.alpha(name)
        p = (*INTERVAL, alpha / 2.0, 1.0 - alpha / 2.0)
        left = np.maximum(quantile(blended, p) - attained, LEAST_S)
        *quantiles, low, high = left.tolist()
        return Predicted(name, quantiles, low if low > LEAST_S else 0.0, high)

    def basis(self, levels: Sequence[Level]) -> Basis:
        """The group that says most."""
        if not self._rings.ends:
            return Basis()
        _, parts = self._mix(levels, 0.0)
        most = int(np.argmax(parts))
        ring = self._rings.get(levels[most].key) or NO_ENDS
        n = effective((self.sample(levels[most].key) or NOTHING).w)
        return Basis(
            levels[most].words(len(ring.lengths)), len(ring.lengths), n, parts[most], ring.newest
        )

    def coverage(self, levels: Sequence[Level], attained: float) -> tuple[int, float]:
        """How many ranges like this job's were scored, and which part of them was right."""
        _, parts = self._mix(levels, attained)
        position = levels[int(np.argmax(parts))].position
        return self._scores.coverage(class_name(position, age_class(attained)))

    def risk(self, levels: Sequence[Level]) -> Risk:
        """By the last five ends of the narrowest group that has any, and the rate of the next."""
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

    def _mix(self, levels: Sequence[Level], attained: float) -> tuple[Sample, list[float]]:
        samples = [self.sample(level.key) or NOTHING for level in levels]
        return mix(samples, attained, self._shrink, prior(attained))


def failure_chance(failed: int, count: int, wider_rate: float) -> float:
    """Of jobs whose last `count` ends alike had that many failures, in a group with this rate."""
    return (failed + SHRINK_FAILURES * wider_rate) / (count + SHRINK_FAILURES)
