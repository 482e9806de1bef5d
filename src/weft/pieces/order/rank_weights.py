"""How much a second of each job weighs for the mean completion time: by rank of what is left.

Where the speed of a job grows with the power `shape` of its share, the best shares follow from the
ranks alone (Berg, Vesilo and Harchol-Balter, "heSRPT: Parallel scheduling to minimize mean
slowdown", Performance Evaluation 144, 2020): weights are their marginal costs.
"""

from __future__ import annotations

import numpy as np

from weft.core.state.table import Bools, Floats


def rank_weights(left: Floats, shape: float = 0.6) -> Floats:
    """The weight of each job, the one with most seconds left having the least, 1."""
    rank = np.empty(len(left))
    rank[np.argsort(-left, kind="stable")] = np.arange(1.0, len(left) + 1.0)
    power = 1.0 / (1.0 - shape)
    weights: Floats = (rank**power - (rank - 1.0) ** power) ** (1.0 / power)
    return weights


def share_ranks(weights: Floats, left: Floats, among: Bools) -> Floats:
    """The same, with one weight for all of `among` who have as much left: their mean.

    Whose rank is the higher then says nothing, and what a change costs decides between them.
    """
    shared = weights.copy()
    _, where, count = np.unique(left[among], return_inverse=True, return_counts=True)
    shared[among] = (np.bincount(where, weights[among]) / count)[where]
    return shared


def flatten_large(weights: Floats, left: Floats, large_s: float) -> Floats:
    """The same, with one weight for all who have more than `large_s` left: their mean.

    Among them ranks would only start the largest last, and the whole work would end later.
    """
    large = left > large_s
    if not large.any():
        return weights
    return np.where(large, weights[large].mean(), weights)
