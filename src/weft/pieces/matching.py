"""Maximum-weight matching of many things of few types.

Things of a type are alike, so only how many of each type are paired with how many of another
matters: an integer program with a variable for each pair of types, whose size does not grow
with the number of things. Its linear relaxation is mostly whole already; where it is not, the
integer program is solved, so the answer is a matching of greatest weight at any size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.table import Floats
from weft.pieces.lp import Sparse, maximise

Pairs = list[tuple[int, int, int]]


def match_types(counts: Sequence[int], weight: Floats) -> Pairs:
    """(type, type, how many pairs) of a matching of greatest total weight.

    `weight[a, b]` is the worth of a pair; pairs worth nothing are not made.
    """
    first, second = np.nonzero(np.triu(weight) > 0.0)
    enough = (first != second) | (np.asarray(counts)[first] > 1)
    first, second = first[enough], second[enough]
    if not first.size:
        return []
    n = len(first)
    columns = np.arange(n)
    matrix = Sparse(
        np.concatenate([first, second]),
        np.concatenate([columns, columns]),
        np.ones(2 * n),
        (len(counts), n),
    )
    limits = np.asarray(counts, dtype=float)
    worth = weight[first, second]
    found = maximise(worth, matrix, limits).x
    if np.abs(found - np.rint(found)).max() > 1e-6:
        found = maximise(worth, matrix, limits, whole=True).x
    made = np.rint(found).astype(int)
    return [
        (int(a), int(b), int(x)) for a, b, x in zip(first, second, made, strict=True) if x > 0
    ]
