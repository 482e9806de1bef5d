"""Differences of two policies seed by seed: what the same draws of chance leave to tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

# Quantiles of Student's t at 97.5 %, by degrees of freedom; beyond, that of the normal law.
T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
NORMAL = 1.96


def interval(own: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The mean difference and half its 95 % interval, from differences seed by seed.

    Of a single seed the half is 0: what is simulated once is what it is.
    """
    differences = [a - b for a, b in zip(own, other, strict=False)]
    if len(differences) < 2:
        return (differences[0] if differences else 0.0), 0.0
    freedom = len(differences) - 1
    quantile = T[freedom - 1] if freedom <= len(T) else NORMAL
    return fmean(differences), quantile * stdev(differences) / sqrt(len(differences))


def differs(own: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the interval leaves out 0."""
    middle, half = interval(own, other)
    return abs(middle) > half
