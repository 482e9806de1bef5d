"""How long jobs run: published distributions, correlated with size and final state.

A job gets a latent score, a normal number shifted by its size class and its state. The score's
own distribution function turns it into a uniform number, and the published one into seconds; so
the lengths keep the published distribution whatever the shifts are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import erf, sqrt

import numpy as np

from weft.traces.draw.params import Family, Floats

KNOTS = 2.0 ** np.arange(22)
SHORTEST = 0.5
GRID = np.linspace(-8.0, 12.0, 4001)


@dataclass(frozen=True)
class Lengths:
    """The lengths of one trace; `extra` are further shifts as (probability, shift) pairs."""

    family: Family
    extra: tuple[tuple[float, float], ...] = ((1.0, 0.0),)

    def draw(self, score: Floats, sizes: Floats, shift: Floats) -> Floats:
        """Seconds for standard normal `score`s, given GPUs and further shifts."""
        bucket = np.searchsorted(self.family.bucket_upper, sizes)
        bucket = np.minimum(bucket, self.family.bucket_offset.size - 1)
        shifted = score + self.family.bucket_offset[bucket] + shift
        u = np.interp(shifted, GRID, self._distribution)
        return quantile(self.family.duration_cdf, u, self.family.duration_cap)

    @cached_property
    def _distribution(self) -> Floats:
        f = self.family
        bucket = np.minimum(np.searchsorted(f.bucket_upper, f.sizes), f.bucket_offset.size - 1)
        phi = np.array([0.5 * (1.0 + erf(z / sqrt(2.0))) for z in GRID])
        total = np.zeros_like(GRID)
        for p_size, offset in zip(f.size_p, f.bucket_offset[bucket], strict=True):
            for p_state, shift in zip(f.state_p, f.state_offset, strict=True):
                for p_extra, more in self.extra:
                    z = GRID - offset - shift - more
                    total += p_size * p_state * p_extra * np.interp(z, GRID, phi, 0.0, 1.0)
        return total


def quantile(cdf: Floats, u: Floats, cap: float) -> Floats:
    """Seconds at probability `u` of a distribution given at 1, 2, 4, ... 2^21 s, at most `cap`."""
    known = np.concatenate(([0.0], cdf, [1.0]))
    at = np.log(np.concatenate(([SHORTEST], KNOTS, [max(cap, 2 * KNOTS[-1])])))
    # Knots without mass between them must not be met in the middle: nudge them apart.
    known = known + 1e-12 * np.arange(known.size)
    seconds: Floats = np.exp(np.interp(u, known, at))
    return np.clip(seconds, 1.0, cap)
