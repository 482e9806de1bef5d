"""Boosted trees as arrays: fitted with scikit-learn in one process, followed with numpy in another.

A sum of trees for each quantile of the logarithm of the seconds left. A job gives a row for every
age that it came to (landmarking), so that one model speaks of jobs of any age.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.state.table import Floats
from weft.predict.calibration import LANDMARKS_S, LEVELS
from weft.predict.learned.features import Row

ITERATIONS, RATE, LEAVES = 120, 0.08, 31
FARTHEST = 1e300  # a threshold that JSON has

Ints = NDArray[np.intp]


class Tree(NamedTuple):
    """Nodes: rows not above the threshold, or without a number where `lost` is set, go left."""

    feature: Ints
    threshold: Floats
    lost: Ints
    left: Ints
    right: Ints
    value: Floats

    def follow(self, x: Floats) -> Floats:
        """What it says of rows x features."""
        at = np.zeros(len(x), dtype=np.intp)
        rows = np.arange(len(x))
        while (inner := self.left[at] > 0).any():
            seen = x[rows, self.feature[at]]
            left = np.where(np.isnan(seen), self.lost[at] > 0, seen <= self.threshold[at])
            at = np.where(inner, np.where(left, self.left[at], self.right[at]), at)
        return self.value[at]


class Forest(NamedTuple):
    """One sum of trees for each of the levels."""

    bases: tuple[float, ...]
    trees: tuple[tuple[Tree, ...], ...]

    def predict(self, x: Floats) -> Floats:
        """Rows x levels, in order: logarithms of the seconds left."""
        sums = [
            base + sum(tree.follow(x) for tree in trees)
            for base, trees in zip(self.bases, self.trees, strict=True)
        ]
        return np.sort(np.column_stack(sums), axis=1)

    @classmethod
    def load(cls, saved: Any) -> Forest:
        """From plain values, as `fit` gives them."""
        read = (np.intp, float, np.intp, np.intp, np.intp, float)
        trees = tuple(
            tuple(Tree(*(np.array(c, t) for c, t in zip(tree, read, strict=True))) for tree in of)
            for of in saved["trees"]
        )
        return cls(tuple(map(float, saved["bases"])), trees)


def fit(rows: Sequence[tuple[Row, float]], ends: int) -> dict[str, Any]:
    """A forest in plain values from features and lengths; imports scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    x, y = spread_over_ages(rows)
    bases, trees = list[float](), list[list[Any]]()
    with threadpool_limits(1):  # sums of several threads differ from run to run
        for level in LEVELS:
            model = HistGradientBoostingRegressor(
                loss="quantile", quantile=level, max_iter=ITERATIONS, learning_rate=RATE,
                max_leaf_nodes=LEAVES, early_stopping=False, random_state=0,
            )  # fmt: skip
            model.fit(x, y)
            bases.append(float(np.ravel(model._baseline_prediction)[0]))
            trees.append([_plain(tree[0].nodes) for tree in model._predictors])
    return {"ends": ends, "bases": bases, "trees": trees}


def spread_over_ages(rows: Sequence[tuple[Row, float]]) -> tuple[Floats, Floats]:
    """A row for every age a job came to, and the logarithm of what was left then."""
    spread = [
        ((*row, np.log1p(age)), np.log(max(length - age, 1.0)))
        for row, length in rows
        for age in LANDMARKS_S
        if age == 0.0 or length > age
    ]
    return np.array([row for row, _ in spread]), np.array([left for _, left in spread])


def _plain(nodes: Any) -> list[list[float]]:
    """The columns of a tree of scikit-learn's; a leaf has no left."""
    inner = nodes["is_leaf"] == 0
    return [
        nodes["feature_idx"].astype(int).tolist(),
        np.clip(nodes["num_threshold"], -FARTHEST, FARTHEST).tolist(),
        nodes["missing_go_to_left"].astype(int).tolist(),
        np.where(inner, nodes["left"], 0).astype(int).tolist(),
        np.where(inner, nodes["right"], 0).astype(int).tolist(),
        nodes["value"].tolist(),
    ]
