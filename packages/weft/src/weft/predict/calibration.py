"""Scores of predictions, measured as jobs end, and ranges that are widened until they hold.

A range that should hold for 80 % of jobs and holds for fewer is widened, one that holds for more is
narrowed: adaptive conformal inference (Gibbs and Candes, NeurIPS 2021). Whatever changes, the
long-run rate of misses comes within 1 / (GAIN * T) of the target after T ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import isfinite, log, log10
from typing import Any

import numpy as np

from weft.core.knowledge.prediction import Calibration, ClassScore
from weft.frozen import frozen

TARGET_MISS = 0.2
GAIN = 0.01
LEAST_ALPHA, MOST_ALPHA = 0.02, 0.6
WINDOW = 500
TENANT_WINDOW = 200
GOOD_COVERAGE = (0.70, 0.90)
DRIFT_LOG10 = 0.5
LANDMARKS_S = (0.0, 60.0, 600.0, 3_600.0, 21_600.0)
LEVELS = (0.1, 0.5, 0.9)


@frozen
class Score:
    """One prediction that came true or not."""

    inside: bool
    pinball: float
    log10_error: float  # signed: above 0 where the job ran longer than predicted


def score(quantiles: Sequence[float], range_: tuple[float, float], truth: float) -> Score:
    """Compare the 0.1, 0.5 and 0.9 quantiles, and the range that was given, with what came."""
    truth = max(truth, 1.0)
    return Score(
        range_[0] <= truth <= range_[1],
        pinball(quantiles, truth),
        log10(truth / max(quantiles[1], 1e-9)),
    )


def pinball(quantiles: Sequence[float], truth: float, levels: Sequence[float] = LEVELS) -> float:
    """The mean pinball loss on logarithms: errors count by factors."""
    gaps = [log(max(truth, 1e-9)) - log(max(q, 1e-9)) for q in quantiles]
    losses = [max(p * gap, (p - 1.0) * gap) for p, gap in zip(levels, gaps, strict=True)]
    return sum(losses) / len(losses)


def next_outside_share(alpha: float, missed: bool, gain: float = GAIN) -> float:
    """The share of jobs to leave outside the next range."""
    return min(max(alpha + gain * (TARGET_MISS - missed), LEAST_ALPHA), MOST_ALPHA)


def age_class(attained: float) -> int:
    """The landmark that a job has passed."""
    return int(np.searchsorted(LANDMARKS_S, attained, side="right")) - 1


class Scoreboard:
    """Scores by class of prediction, the width of ranges that follows, and tenants that drift."""

    def __init__(self) -> None:
        self._alphas: dict[str, float] = {}
        self._classes: dict[str, deque[Score]] = {}
        self._all: deque[Score] = deque(maxlen=WINDOW)
        self._tenants: dict[str, deque[Score]] = {}
        self._drifting: dict[str, int] = {}  # ends until it is over

    def outside_share(self, name: str) -> float:
        """The share of jobs that ranges of this class leave outside."""
        return self._alphas.get(name, TARGET_MISS)

    def add(self, name: str, tenant: str, scored: Score) -> None:
        """A prediction of this class came to its end."""
        self._alphas[name] = next_outside_share(self.outside_share(name), not scored.inside)
        self._classes.setdefault(name, deque(maxlen=WINDOW)).append(scored)
        self._all.append(scored)
        self._tenants.setdefault(tenant, deque(maxlen=TENANT_WINDOW)).append(scored)

    def score_end(self, tenant: str) -> bool:
        """After an end: whether this tenant's jobs have just begun to drift, or ceased to."""
        if tenant in self._drifting:
            self._drifting[tenant] -= 1
            if self._drifting[tenant] > 0:
                return False
            del self._drifting[tenant]
            self._tenants.pop(tenant, None)
            return True
        scores = self._tenants.get(tenant, ())
        if len(scores) < TENANT_WINDOW or not _drifts(scores):
            return False
        self._drifting[tenant] = TENANT_WINDOW
        return True

    @property
    def drifting(self) -> frozenset[str]:
        """Tenants whose jobs are unlike those before."""
        return frozenset(self._drifting)

    def report(self) -> Calibration:
        classes = [
            ClassScore(name, len(scores), *_summary(scores), self.outside_share(name))
            for name, scores in sorted(self._classes.items())
        ]
        return Calibration(
            len(self._all), *_summary(self._all), tuple(sorted(self._drifting)), tuple(classes)
        )

    def save(self) -> Any:
        return {
            "alphas": self._alphas,
            "classes": {name: _plain(scores) for name, scores in self._classes.items()},
            "all": _plain(self._all),
            "tenants": {name: _plain(scores) for name, scores in self._tenants.items()},
            "drifting": self._drifting,
        }

    def load(self, saved: Any) -> None:
        self._alphas, self._drifting = dict(saved["alphas"]), dict(saved["drifting"])
        self._classes = {name: _read(rows, WINDOW) for name, rows in saved["classes"].items()}
        self._all = _read(saved["all"], WINDOW)
        self._tenants = {n: _read(rows, TENANT_WINDOW) for n, rows in saved["tenants"].items()}


def _plain(scores: Iterable[Score]) -> list[list[float]]:
    return [[float(s.inside), s.pinball, s.log10_error] for s in scores]


def _read(rows: Iterable[Sequence[float]], most: int) -> deque[Score]:
    return deque((Score(bool(a), float(b), float(c)) for a, b, c in rows), maxlen=most)


def _summary(scores: Iterable[Score]) -> tuple[float, float, float]:
    """Coverage, mean pinball loss and median of the absolute error; nan of none."""
    known = [score for score in scores if isfinite(score.log10_error)]
    if not known:
        return float("nan"), float("nan"), float("nan")
    inside = sum(score.inside for score in known) / len(known)
    loss = sum(score.pinball for score in known) / len(known)
    return inside, loss, float(np.median([abs(score.log10_error) for score in known]))


def _drifts(scores: Iterable[Score]) -> bool:
    known = list(scores)
    inside = sum(score.inside for score in known) / len(known)
    off = float(np.median([score.log10_error for score in known]))
    return not GOOD_COVERAGE[0] <= inside <= GOOD_COVERAGE[1] or abs(off) > DRIFT_LOG10
