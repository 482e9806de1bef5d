"""The arbiter: who sees an offer, and the partial allocation among those who bid.

Partial allocation (Cole, Gkatzelis and Goel, EC 2013) gives every bidder a part of its share of
the proportionally fair division; the rest is withheld, as the price of what its presence costs the
others, so that nobody gains by bidding untruthfully.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log

import numpy as np

from weft.core.state.table import Floats

NOTHING = 1e-9  # what no GPU at all is worth: the product of values must not vanish
EPS = 1e-9

Bids = Mapping[int, float]  # GPUs to the value 1 / rho with them
Worth = dict[int, float]  # the logarithm of that, in order of GPUs


def count_participants(apps: int, f: float) -> int:
    """How many of the worst-off apps see an offer."""
    return max(1, ceil((1.0 - f) * apps - EPS))


def divide(offer: int, bids: Sequence[Bids]) -> tuple[list[int], list[float]]:
    """GPUs of each bidder in the proportionally fair division, and the part c it may keep."""
    tables = [_table(bid, offer) for bid in bids]
    before = _stack(tables, offer)
    behind = _stack(tables[::-1], offer)[::-1]
    sizes = _trace(tables, before, offer)
    logs = [table[size] for table, size in zip(tables, sizes, strict=True)]
    # The best sums of all others, who share the offer: those before each bidder and behind it.
    without = (before[:-1] + behind[1:, ::-1]).max(axis=1).tolist()
    whole = sum(logs)
    parts = [
        min(float(np.exp(whole - own - rest)), 1.0) for own, rest in zip(logs, without, strict=True)
    ]
    return sizes, parts


def keep(size: int, part: float, useful: Sequence[int]) -> int:
    """Whole GPUs that a winner keeps: the largest useful number within its part, at least one."""
    within = [n for n in useful if 0 < n <= floor(part * size + EPS)]
    return max(within) if within else min((n for n in useful if 0 < n <= size), default=0)


def _table(bid: Bids, offer: int) -> Worth:
    """Log of the value of useful numbers of GPUs up to the offer, from none on."""
    useful = {gpus: log(max(bid[gpus], NOTHING)) for gpus in sorted(bid) if 0 < gpus <= offer}
    return {0: log(NOTHING), **useful}


def _stack(tables: Sequence[Worth], offer: int) -> Floats:
    """Best sums of the first tables, by GPUs spent at most; one more entry than tables."""
    sums = np.zeros((len(tables) + 1, offer + 1))
    for before, best, table in zip(sums, sums[1:], tables, strict=False):
        np.add(before, table[0], out=best)
        for gpus, worth in table.items():
            if gpus:
                more = best[gpus:]
                np.maximum(more, before[:-gpus] + worth, out=more)
    return sums


def _trace(tables: Sequence[Worth], sums: Floats, offer: int) -> list[int]:
    """The numbers that make up the best sum; of equals the smallest, for the latest bidder."""
    sizes, left = [0] * len(tables), offer
    for i in range(len(tables) - 1, -1, -1):
        before = sums[i]
        known = {n: float(before[left - n]) + w for n, w in tables[i].items() if n <= left}
        most = max(known.values()) - 1e-12
        sizes[i] = next(n for n, w in known.items() if w >= most)
        left -= sizes[i]
    return sizes
