"""Models that are sums of small ones, each fitted to what the ones before leave unexplained."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft_papers.qssf.cart import Leaf, Node, follow, from_plain, grow, to_plain

RATE, TREES, DEPTH, LEAST = 0.1, 40, 5, 20  # of trees; the rate and the least rows are LightGBM's
STEP, PASSES, BINS = 0.05, 200, 32  # of shapes
PAIRS, COARSE = 20, 8  # interactions, as published, and bins of each of their two features

Bins = NDArray[np.intp]


class Trees(NamedTuple):
    """The mean, and trees of what is left."""

    mean: float
    trees: tuple[Node, ...]

    def predict(self, row: Floats) -> float:
        return self.mean + RATE * sum(follow(tree, row) for tree in self.trees)

    def save(self) -> Any:
        return [self.mean, *map(to_plain, self.trees)]

    @classmethod
    def load(cls, saved: Any) -> Trees:
        mean, *trees = saved
        return cls(float(mean), tuple(map(from_plain, trees)))


def fit_trees(x: Floats, y: Floats) -> Trees:
    """Gradient boosting of squared errors: rows x features, and what they came to."""
    mean = float(y.mean())
    left, trees = y - mean, []
    for _ in range(TREES):
        tree = grow(x, left, DEPTH, LEAST)
        if isinstance(tree, Leaf):
            break
        left = left - RATE * np.array([follow(tree, row) for row in x])
        trees.append(tree)
    return Trees(mean, tuple(trees))


class Shapes(NamedTuple):
    """A value by bin of each feature, and of some pairs of features; all are added up."""

    mean: float
    edges: tuple[Floats, ...]  # of the bins of each feature
    coarse: tuple[Floats, ...]  # the same for pairs
    shapes: tuple[Floats, ...]
    pairs: tuple[tuple[int, int], ...]
    pair_shapes: tuple[Floats, ...]

    def predict(self, row: Floats) -> float:
        """The sum of what each feature and pair adds."""
        alone = zip(self.shapes, self.edges, row, strict=True)
        total = sum(shape[edges.searchsorted(value)] for shape, edges, value in alone)
        at = [edges.searchsorted(value) for edges, value in zip(self.coarse, row, strict=True)]
        pairs = zip(self.pair_shapes, self.pairs, strict=True)
        return float(
            self.mean + total + sum(shape[at[a] * COARSE + at[b]] for shape, (a, b) in pairs)
        )

    def save(self) -> Any:
        arrays = (self.edges, self.coarse, self.shapes, self.pair_shapes)
        return [self.mean, self.pairs, *([part.tolist() for part in parts] for parts in arrays)]

    @classmethod
    def load(cls, saved: Any) -> Shapes:
        mean, pairs, *arrays = saved
        edges, coarse, shapes, tables = (tuple(map(np.array, parts)) for parts in arrays)
        named = tuple((int(a), int(b)) for a, b in pairs)
        return cls(float(mean), edges, coarse, shapes, named, tables)


def fit_shapes(x: Floats, y: Floats) -> Shapes:
    """Features in turn, then the pairs that tell most of what these leave (GA2M)."""
    mean, count = float(y.mean()), x.shape[1]
    edges, coarse = _edges(x, BINS), _edges(x, COARSE)
    bins = [edges[i].searchsorted(x[:, i]) for i in range(count)]
    shapes, left = _fit_in_turn(bins, BINS, y - mean)
    few = [coarse[i].searchsorted(x[:, i]) for i in range(count)]
    both = {(a, b): few[a] * COARSE + few[b] for a, b in combinations(range(count), 2)}
    pairs = sorted(both, key=lambda pair: (-_gain(both[pair], left), pair))[:PAIRS]
    pair_shapes, _ = _fit_in_turn([both[pair] for pair in pairs], COARSE * COARSE, left)
    return Shapes(mean, edges, coarse, shapes, tuple(pairs), pair_shapes)


def _edges(x: Floats, bins: int) -> tuple[Floats, ...]:
    """Borders of bins of the same width."""
    return tuple(np.linspace(column.min(), column.max(), bins + 1)[1:-1] for column in x.T)


def _fit_in_turn(columns: list[Bins], bins: int, left: Floats) -> tuple[tuple[Floats, ...], Floats]:
    """The value of each bin of each column, and what is left: all columns again and again."""
    shapes = [np.zeros(bins) for _ in columns]
    counts = [np.maximum(np.bincount(column, minlength=bins), LEAST) for column in columns]
    for _ in range(PASSES):
        for shape, column, count in zip(shapes, columns, counts, strict=True):
            change = STEP * np.bincount(column, left, bins) / count
            shape += change
            left = left - change[column]
    return tuple(shapes), left


def _gain(column: Bins, left: Floats) -> float:
    """Return what the means of bins would take off the squared error."""
    size = COARSE * COARSE
    return float(
        (np.bincount(column, left, size) ** 2 / (np.bincount(column, minlength=size) + 1.0)).sum()
    )
