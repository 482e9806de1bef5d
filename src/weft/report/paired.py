"""Differences of two policies seed by seed: what the same draws of chance leave to tell apart."""

from __future__ import annotations

from collections.abc import Sequence

from weft.formulas.statistics import mean_interval


def interval(own: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The mean difference and half its 95 % interval, from differences seed by seed.

    Of a single seed the half is 0: what is simulated once is what it is.
    """
    return mean_interval([a - b for a, b in zip(own, other, strict=False)])


def differs(own: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the interval leaves out 0."""
    middle, half = interval(own, other)
    return abs(middle) > half
