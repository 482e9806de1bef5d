"""A regression tree in numpy: the split that leaves the least squared error, again and again."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.state.cells import Floats
from weft.frozen import frozen


@frozen
class Leaf:
    """The mean of what came here."""

    value: float


@frozen
class Split:
    """Rows whose feature is not above the threshold go left."""

    feature: int
    threshold: float
    left: Node
    right: Node


Node = Leaf | Split


def grow(x: Floats, y: Floats, depth: int = 10, least: int = 5) -> Node:
    """A tree of rows x features; a leaf has at least that many rows."""
    split = _best_split(x, y, least) if depth > 0 and len(y) >= 2 * least else None
    if split is None:
        return Leaf(float(y.mean()))
    feature, threshold = split
    left = x[:, feature] <= threshold
    return Split(
        feature,
        threshold,
        grow(x[left], y[left], depth - 1, least),
        grow(x[~left], y[~left], depth - 1, least),
    )


def follow(tree: Node, row: Floats) -> float:
    """Return the value of the leaf that a row ends in."""
    while isinstance(tree, Split):
        tree = tree.left if row[tree.feature] <= tree.threshold else tree.right
    return tree.value


def to_plain(tree: Node) -> Any:
    """As values that JSON has: a number, or feature, threshold, left and right."""
    if isinstance(tree, Leaf):
        return tree.value
    return [tree.feature, tree.threshold, to_plain(tree.left), to_plain(tree.right)]


def from_plain(plain: Any) -> Node:
    """Read a tree that `to_plain` wrote."""
    if not isinstance(plain, list):
        return Leaf(float(plain))
    feature, threshold, left, right = plain
    return Split(int(feature), float(threshold), from_plain(left), from_plain(right))


def _best_split(x: Floats, y: Floats, least: int) -> tuple[int, float] | None:
    best, split = 1e-12, None
    count = np.arange(1, len(y))
    mean = y.mean()
    for feature in range(x.shape[1]):
        order = np.argsort(x[:, feature], kind="stable")
        values, sums = x[order, feature], np.cumsum(y[order] - mean)[:-1]
        # What a split takes off the squared error, up to a constant.
        gain = sums**2 / count + sums**2 / (len(y) - count)
        gain[(values[:-1] >= values[1:]) | (count < least) | (len(y) - count < least)] = 0.0
        at = int(np.argmax(gain))
        if gain[at] > best:
            best, split = float(gain[at]), (feature, float(values[at] + values[at + 1]) / 2.0)
    return split
