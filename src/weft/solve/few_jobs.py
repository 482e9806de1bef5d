"""The multiple-choice knapsack of a few jobs, in plain floats.

What `multiple_choice` does with arrays, with the same answers: for so few numbers the calls
would cost more than the arithmetic. Sums are numpy's, for their last digits depend on the order.
"""

from __future__ import annotations

from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.native import compiled
from weft.solve.exact import fill_grid

Ints = NDArray[np.intp]
FEW = 24  # jobs up to which this is quicker
NONE = -1
EPS = 1e-9


@compiled
def take_freely(value: Floats, kind: Ints, count: Floats, capacity: Floats) -> list[int] | None:
    """The best size of each job if all fit together, else None."""
    plain = as_plain(value, kind, count, capacity, np.zeros(len(capacity)))
    pick, used = plain.best()[0], [0.0] * len(capacity)
    for size in pick:
        if size >= 0:
            used[plain.kind[size]] += plain.count[size]
    fits = all(taken <= there + EPS for taken, there in zip(used, plain.capacity, strict=True))
    return pick if fits else None


@compiled
def take_at_prices(
    value: Floats, kind: Ints, count: Floats, capacity: Floats, prices: Floats, passes: int
) -> tuple[list[int], float]:
    """What fits of what jobs take at given prices, and the sum of what that leaves to them."""
    plain = as_plain(value, kind, count, capacity, prices)
    best, tops = plain.best()
    return plain.repair(best, passes), float(np.array(tops).sum())


@compiled
def close_exactly(
    value: Floats,
    kind: Ints,
    count: Floats,
    capacity: Floats,
    prices: Floats,
    slack: float,
    states: float,
) -> list[int] | None:
    """The best sizes that a bound with this slack leaves to jobs.

    None where a search has more than that many states; nothing if there is none to be done.
    """
    fixed, open_rows, left, room = leave_open(value, kind, count, capacity, prices, slack)
    if min(room) < -EPS or not open_rows:
        return []
    if prod(r + 1.0 for r in room) > states:
        return None
    for row, size in zip(open_rows, fill_grid(left, kind, count, np.array(room)), strict=True):
        fixed[row] = size
    return fixed


def leave_open(
    value: Floats, kind: Ints, count: Floats, capacity: Floats, prices: Floats, slack: float
) -> tuple[list[int], list[int], Floats, list[float]]:
    """Settled sizes, rows that the bound leaves several, what those are worth, and their room."""
    plain = as_plain(value, kind, count, capacity, prices)
    fixed, several = plain.settle(plain.best()[1], slack)
    open_rows = [row for row, alive in enumerate(several) if alive]
    left = np.full((len(open_rows), len(plain.kind)), -np.inf)
    for at, row in enumerate(open_rows):
        left[at, several[row]] = value[row, several[row]]
    return fixed, open_rows, left, plain.room(fixed)


@compiled
def add_up(value: Floats, pick: Ints) -> float:
    """What the sizes that jobs take are worth together."""
    rows = np.flatnonzero(pick >= 0)
    return float(value[rows, pick[rows]].sum())


def as_plain(value: Floats, kind: Ints, count: Floats, capacity: Floats, prices: Floats) -> Plain:
    """The problem as lists, at given prices."""
    cost = (prices[kind] * count).tolist()
    return Plain(value.tolist(), kind.tolist(), count.tolist(), capacity.tolist(), cost)


@frozen
class Plain:
    """The problem as lists, and `cost`, what each size costs at some prices."""

    value: list[list[float]]
    kind: list[int]
    count: list[float]
    capacity: list[float]
    cost: list[float]

    def best(self) -> tuple[list[int], list[float]]:
        """What each job takes at the prices, and what that leaves it; ties to the earlier size."""
        pick, tops = [], []
        for row in self.value:
            net = [v - c for v, c in zip(row, self.cost, strict=True)]
            top = max(net)
            pick.append(net.index(top) if top > 0.0 else NONE)
            tops.append(top if top > 0.0 else 0.0)
        return pick, tops

    def room(self, pick: list[int]) -> list[float]:
        """GPUs of each kind that a choice leaves."""
        used = [0.0] * len(self.capacity)
        for size in pick:
            if size >= 0:
                used[self.kind[size]] += self.count[size]
        return [there - taken for there, taken in zip(self.capacity, used, strict=True)]

    def repair(self, pick: list[int], passes: int) -> list[int]:
        """Shed what does not fit at the least loss per GPU; what is left goes to the best gain."""
        pick, room = [*pick], self.room(pick)
        while (least := min(room)) < -EPS:
            self._shed(pick, room, room.index(least))
        for _ in range(passes):
            if not self._fill(pick, room):
                break
        return pick

    def _shed(self, pick: list[int], room: list[float], k: int) -> None:
        """One pass over the jobs on kind `k`, those that lose least for a freed GPU first."""
        kind, count, missing = self.kind, self.count, max(-room[k], 1.0)
        offered = [
            (size, cost, count[size] if of == k else 0.0)
            for size, (of, cost) in enumerate(zip(kind, self.cost, strict=True))
            if of == k or count[size] <= room[of] + EPS
        ]
        losses = []
        for row, now in enumerate(pick):
            if now < 0 or kind[now] != k:
                continue
            value, held = self.value[row], count[now]
            net = value[now] - self.cost[now]
            least, to = inf, 0
            for size, cost, still in offered:
                if held > still:
                    loss = (net - (value[size] - cost)) / min(max(held - still, 1e-9), missing)
                    if loss < least:
                        least, to = loss, size
            loss = net / min(max(held, 1e-9), missing)
            if held > 0.0 and loss < least:
                least, to = loss, NONE
            losses.append((least, row, to))
        losses.sort(key=_first)
        for _, row, to in losses:
            if room[k] >= -EPS:
                return
            if to >= 0 and kind[to] != k and count[to] > room[kind[to]]:
                return  # another kind has filled up meanwhile: choose again
            self._move(pick, room, row, to)

    def _fill(self, pick: list[int], room: list[float]) -> bool:
        """One pass over the jobs, those that gain most for a GPU first; whether any moved."""
        kind, gains = self.kind, []
        sizes = [*enumerate(zip(kind, self.count, [room[of] + EPS for of in kind], strict=True))]
        for row, now in enumerate(pick):
            value = self.value[row]
            own, held, worth = NONE, 0.0, 0.0
            if now >= 0:
                own, held, worth = kind[now], self.count[now], value[now]
            best, to, takes = -inf, NONE, 0.0
            for size, (of, extra, most) in sizes:
                if (gain := value[size] - worth) > 1e-12:
                    if of == own:
                        extra -= held
                    if extra <= most and (density := gain / max(extra, 1e-3)) > best:
                        best, to, takes = density, size, extra
            if to >= 0:
                gains.append((-best, row, to, takes))
        gains.sort(key=_first)
        moved = False
        for _, row, to, takes in gains:
            if takes <= room[kind[to]] + EPS:
                self._move(pick, room, row, to)
                moved = True
        return moved

    def _move(self, pick: list[int], room: list[float], row: int, size: int) -> None:
        if (now := pick[row]) >= 0:
            room[self.kind[now]] += self.count[now]
        pick[row] = size
        if size >= 0:
            room[self.kind[size]] -= self.count[size]

    def settle(self, tops: list[float], slack: float) -> tuple[list[int], list[list[int]]]:
        """The size that a bound with this slack leaves each job, and where it leaves several.

        Those are without a size, and have a list of what is left to them.
        """
        fixed, several = [], []
        for row, top in zip(self.value, tops, strict=True):
            net = zip(row, self.cost, strict=True)
            alive = [size for size, (v, cost) in enumerate(net) if top - (v - cost) <= slack]
            undecided = len(alive) + (top <= slack) > 1
            fixed.append(NONE if undecided or not alive else alive[0])
            several.append(alive if undecided else [])
        return fixed, several


def _first(row: tuple[float, ...]) -> float:
    return row[0]
