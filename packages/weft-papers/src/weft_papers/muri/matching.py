"""Maximum-weight matching of many things of few types.

Things of a type are alike, so only how many of each type are paired with how many of another
matters: an integer program with a variable for each pair of types, whose size does not grow
with the number of things. Its linear relaxation is whole except around odd sets of types; Edmonds
("Maximum matching and a polyhedron with 0,1-vertices", 1965) showed that limiting the pairs
inside every odd set makes it whole. With few types violated sets are found by looking at all of
them; with many, the integer program is handed over as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.solve.linear_program import Sparse, maximise

Pairs = list[tuple[int, int, int]]
FEW = 10
KEPT = 1024  # answers, by what was asked
EPS = 1e-6


def match_types(counts: Sequence[int], weight: Floats) -> Pairs:
    """(type, type, how many pairs) of a matching of greatest total weight.

    `weight[a, b]` is the worth of a pair; pairs worth nothing are not made. A caller that asks at
    every decision asks the same again where nothing changed: the last answers are kept.
    """
    return list(_match(tuple(counts), np.asarray(weight, dtype=float).tobytes()))


@lru_cache(maxsize=KEPT)
def _match(counts: tuple[int, ...], cells: bytes) -> Pairs:
    limits = np.array(counts, dtype=float)
    weight = np.frombuffer(cells).reshape(len(counts), len(counts))
    first, second = np.nonzero(np.triu(weight) > 0.0)
    enough = (first != second) | (limits[first] > 1.0)
    first, second = first[enough], second[enough]
    if not first.size:
        return []
    worth = weight[first, second]
    solve = _cut if len(limits) <= FEW else _whole
    made = np.rint(solve(worth, first, second, limits)).astype(int)
    return [(int(a), int(b), int(x)) for a, b, x in zip(first, second, made, strict=True) if x > 0]


def _cut(worth: Floats, first: Rows, second: Rows, limits: Floats) -> Floats:
    """The linear program, with limits on odd sets added until the answer is whole."""
    sets = _sets(len(limits))
    odd = sets[(sets @ limits) % 2 == 1]
    inside = odd[:, first] * odd[:, second]
    most = (odd @ limits - 1.0) / 2.0
    matrix, room = _degrees(first, second, len(limits)), limits
    while True:
        x = maximise(worth, matrix, room).x
        if np.abs(x - np.rint(x)).max() <= EPS:
            return x
        over = inside @ x - most
        broken = np.flatnonzero(over > EPS)
        if not broken.size:  # a point between equal corners: let the solver choose one
            return _whole(worth, first, second, limits)
        broken = broken[np.argsort(-over[broken], kind="stable")[: len(limits)]]
        matrix = matrix.above(Sparse.of(inside[broken]))
        room = np.concatenate([room, most[broken]])


def _whole(worth: Floats, first: Rows, second: Rows, limits: Floats) -> Floats:
    return maximise(worth, _degrees(first, second, len(limits)), limits, whole=True).x


def _degrees(first: Rows, second: Rows, types: int) -> Sparse:
    """A pair uses one of each of its types, or two of the one it has."""
    n = len(first)
    columns = np.concatenate([np.arange(n), np.arange(n)])
    return Sparse(np.concatenate([first, second]), columns, np.ones(2 * n), (types, n))


@lru_cache(maxsize=FEW + 1)
def _sets(types: int) -> Floats:
    """Every set of types, as rows of ones and zeros."""
    numbers = np.arange(1, 1 << types)
    return (numbers[:, None] >> np.arange(types) & 1).astype(float)
