"""Sharing scores: how much a job suffers and disturbs beside another on its devices.

The thresholds are our own fit of a small decision tree to the authors' solo measurements
(`benchmarks/fit_lucid_scores.py`): memory-bus use decides first, then GPU use. Mixed precision
and peak memory were offered to the tree and bought nothing that a leaf of two workloads would
not explain, so they are pruned; it agrees with 54 of the 66 labels, the full tree with 56.
"""

from __future__ import annotations

from weft.core.knowledge.profile import Profile

TINY, MEDIUM, JUMBO = 0, 1, 2
BUS_BUSY = 0.305
GPU_BUSY = 0.25
MOST = 2  # the scores of a pair sum to at most this


def score(profile: Profile) -> int:
    """Tiny, medium or jumbo, from what a job does with a device when alone."""
    if profile.bandwidth_use > BUS_BUSY:
        return JUMBO
    return TINY if profile.gpu_use <= GPU_BUSY else MEDIUM


def label(average_speed: float) -> int:
    """The ground truth for the tree: a job's mean normalised speed over measured partners."""
    if average_speed < 0.85:
        return JUMBO
    return MEDIUM if average_speed < 0.95 else TINY
