"""Ranks over traces, and how far apart two mean ranks must be to tell policies apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata, studentized_range

SAME = 0.005  # relative differences below are ties


class Standing(NamedTuple):
    """Mean ranks of policies over traces, best first, and the critical difference of two."""

    ranks: dict[str, float]
    traces: int
    difference: float


def standing(values: Mapping[str, Sequence[float]]) -> Standing:
    """Rank policies on each trace, the least value first; all have a value on every trace.

    The critical difference is Nemenyi's at 5 %, as in Demsar 2006: policies whose mean ranks are
    further apart differ.
    """
    names = list(values)
    table = np.array([values[name] for name in names], dtype=float)
    ranks = np.apply_along_axis(_rank, 0, table)
    means = dict(zip(names, ranks.mean(axis=1).tolist(), strict=True))
    ordered = dict(sorted(means.items(), key=lambda item: item[1]))
    count, traces = table.shape
    return Standing(ordered, traces, critical_difference(count, traces))


def critical_difference(policies: int, traces: int) -> float:
    """Nemenyi's, at 5 %."""
    if policies < 2:
        return 0.0
    quantile = float(studentized_range.ppf(0.95, policies, np.inf)) / sqrt(2.0)
    return quantile * sqrt(policies * (policies + 1) / (6.0 * traces))


def _rank(column: np.ndarray) -> np.ndarray:
    """Ranks of one trace; values that hardly differ from the one before share theirs."""
    order = np.argsort(column, kind="stable")
    steps = column[order]
    new = np.diff(steps, prepend=-np.inf) > SAME * np.abs(steps) + 1e-12
    level = np.empty(len(column))
    level[order] = np.cumsum(new)
    return np.asarray(rankdata(level))
