"""The quantities of IADeep: gradient noise, interference, and its grids."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_NOISE = 1e-6
PARTS = 32  # steps of a job's grid of batch sizes


def noise_scale(batch: int, small: float, large: float) -> float:
    """Gradient noise scale from squared gradient norms at a batch and at twice that batch."""
    double = 2 * batch
    signal = abs((double * large - batch * small) / (double - batch))
    noise = max((small - large) / (1.0 / batch - 1.0 / double), LEAST_NOISE)
    return noise / signal


def interference(stretches: Sequence[float]) -> float:
    """Sum of relative slowdowns of jobs on a device."""
    return sum(stretch - 1.0 for stretch in stretches)


def axis(batch: int, most: int | None = None) -> list[int]:
    """Batch sizes to search for a job that was submitted with `batch`, at most `most`."""
    low = max(int(batch // 1.5) // 2 * 2, 1)
    step = max((2 * batch - low) // PARTS, 1)
    sizes = [size for size in range(low, 2 * batch, step) if most is None or size <= most]
    return sizes or [batch]
