"""Cells of one type of hardware, and the buddy allocation of those that are free.

A cell of level 0 is one device; a cell of the next level is that many equal ones of the level
below. Free space is kept as maximal cells: taking one splits the smallest that will do, and giving
one back merges it with its siblings as soon as all of them are free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from weft.frozen import frozen

Cell = tuple[int, int]  # level, number among the cells of that level
Cost = Callable[[Cell], float]


@dataclass(frozen=True)
class CellChain:
    """Machines of one type: what its levels are called and how many of the level below make one.

    `nodes` are the machines in order; the first `tops[l]` cells of each level from the top down
    stand alone, the others are parts of those above.
    """

    name: str
    levels: tuple[str, ...]
    fan: tuple[int, ...]
    node_level: int
    tops: tuple[int, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Devices of a cell of each level."""
        sizes, size = [], 1
        for fan in self.fan:
            size *= fan
            sizes.append(size)
        return tuple(sizes)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Cells of each level, whatever they are part of."""
        counts, above = [0] * len(self.fan), 0
        for level in reversed(range(len(self.fan))):
            counts[level] = self.tops[level] + above
            above = counts[level] * self.fan[level]
        return tuple(counts)

    @property
    def node_size(self) -> int:
        return self.sizes[self.node_level]

    def above(self, cell: Cell) -> Cell | None:
        """The cell that it is a part of; None for one that stands alone."""
        level, number = cell
        if level + 1 == len(self.fan):
            return None
        parent = number // self.fan[level + 1]
        return (level + 1, parent) if parent < self.counts[level + 1] else None

    def inside(self, cell: Cell) -> list[Cell]:
        """Its parts, one level below."""
        level, number = cell
        fan = self.fan[level]
        return [(level - 1, number * fan + part) for part in range(fan)]

    def at(self, level: int, device: int) -> Cell | None:
        """The cell of a level that a device is in; None if it is in none."""
        number = device // self.sizes[level]
        return (level, number) if number < self.counts[level] else None

    def first(self, cell: Cell) -> int:
        """Its first device, among all of the chain."""
        return cell[1] * self.sizes[cell[0]]

    def devices(self, cell: Cell) -> range:
        first = self.first(cell)
        return range(first, first + self.sizes[cell[0]])

    def nodes(self, cell: Cell) -> range:
        """The machines that it is made of, or the one that it is a part of."""
        devices = self.devices(cell)
        return range(devices[0] // self.node_size, devices[-1] // self.node_size + 1)


@frozen
class Balance:
    """Cells of one level that are available, those that are assigned, and what that leaves."""

    available: int
    assigned: int

    @property
    def rest(self) -> int:
        """Below 0 if too many are assigned."""
        return self.available - self.assigned


def check_assignment(
    fan: Sequence[int], free: Sequence[int], assigned: Sequence[int]
) -> list[Balance]:
    """Each level's balance, if cells are taken from the top down and the rest is split.

    `free` are maximal free cells and `assigned` cells to be had, by level from the bottom. It fits
    if no rest is below 0.
    """
    balances: list[Balance] = []
    rest = 0
    for level in reversed(range(len(fan))):
        above = max(rest, 0) * fan[level + 1] if level + 1 < len(fan) else 0
        balances.append(Balance(free[level] + above, assigned[level]))
        rest = balances[-1].rest
    return balances[::-1]


class FreeCells:
    """Free cells of a chain; `bad` are the numbers of machines that are away."""

    def __init__(self, chain: CellChain, bad: Collection[int] = ()) -> None:
        self.chain = chain
        self._free: list[set[int]] = [set() for _ in chain.fan]
        self._bad: list[set[int]] = [set() for _ in chain.fan]
        for level, tops in enumerate(chain.tops):
            first = chain.counts[level] - tops
            self._free[level] = set(range(first, chain.counts[level]))
        for node in bad:
            self.fail(node)

    # ---- reading

    def free(self, level: int) -> list[int]:
        return sorted(self._free[level])

    def counts(self) -> list[int]:
        """Return the number of free cells of each level."""
        return [len(cells) for cells in self._free]

    def available(self, level: int) -> int:
        """Cells of a level that could be had, those inside larger ones too."""
        count = 0
        for above in reversed(range(level, len(self._free))):
            count = len(self._free[above]) + count * self._fan(above + 1)
        return count

    @property
    def has_bad(self) -> bool:
        """True if any cell is bad."""
        return any(self._bad)

    def bad_free(self, level: int) -> list[int]:
        """Return the numbers of bad cells of a level that are free."""
        return sorted(n for n in self._bad[level] if self.is_free((level, n)))

    def is_free(self, cell: Cell) -> bool:
        return self._holder(cell) is not None

    def is_bad(self, cell: Cell) -> bool:
        """Return true if part of the cell is on a machine that is away."""
        return cell[1] in self._bad[cell[0]]

    def splittable(self, wanted: Sequence[int]) -> list[int]:
        """Free cells of each level that may be split so that all `wanted` are still to be had.

        Below 0 the promise is broken already.
        """
        counts, above = [], 0
        for level in reversed(range(len(self._free))):
            above = len(self._free[level]) - wanted[level] + above * self._fan(level + 1)
            counts.append(above)
        return counts[::-1]

    def keeps(self, wanted: Sequence[int]) -> bool:
        """Return true if all `wanted` cells of each level can be had, in any order."""
        fan = self.chain.fan
        return all(b.rest >= 0 for b in check_assignment(fan, self.counts(), wanted))

    # ---- changing

    def allocate(self, level: int, wanted: Sequence[int], cost: Cost | None = None) -> Cell | None:
        """A free cell on machines that are there, the cheapest of the smallest that will do.

        `wanted` are cells of each level that must be had afterwards. None where there is no such.
        """
        for k in range(level, len(self._free)):
            for number in self._ranked(k, cost):
                cell = self._healthy((k, number), level, cost)
                if cell is None:
                    continue
                if self.take_cell(cell, wanted):
                    return cell
                break  # splitting any other of this level would cost as much
        return None

    def take_cell(self, cell: Cell, wanted: Sequence[int] | None = None) -> bool:
        """Take one certain cell, if it is free and all `wanted` can still be had afterwards."""
        holder = self._holder(cell)
        if holder is None:
            return False
        at = holder
        while at != cell:
            self._free[at[0]].discard(at[1])
            inner = self._part_around(at, cell)
            for part in self.chain.inside(at):
                self._free[part[0]].add(part[1])
            at = inner
        self._free[cell[0]].discard(cell[1])
        if wanted is not None and not self.keeps(wanted):
            self.release(cell)
            return False
        return True

    def release(self, cell: Cell) -> None:
        """Give a cell back; whole parents are made of siblings that are all free."""
        while (above := self.chain.above(cell)) is not None:
            others = [part for part in self.chain.inside(above) if part != cell]
            if not all(part[1] in self._free[part[0]] for part in others):
                break
            for part in others:
                self._free[part[0]].discard(part[1])
            cell = above
        self._free[cell[0]].add(cell[1])

    def fail(self, node: int) -> None:
        """A machine is away: its cells, and those that it is a part of, are bad."""
        for device in self.chain.devices((self.chain.node_level, node)):
            self.mark_bad(device)

    def mark_bad(self, device: int) -> None:
        """A device cannot be had: all cells that it is in are bad."""
        for level, bad in enumerate(self._bad):
            if (cell := self.chain.at(level, device)) is not None:
                bad.add(cell[1])

    # ---- inside

    def _fan(self, level: int) -> int:
        return self.chain.fan[level] if level < len(self.chain.fan) else 0

    def _holder(self, cell: Cell) -> Cell | None:
        at: Cell | None = cell
        while at is not None:
            if at[1] in self._free[at[0]]:
                return at
            at = self.chain.above(at)
        return None

    def _part_around(self, cell: Cell, inner: Cell) -> Cell:
        level = cell[0] - 1
        return level, self.chain.first(inner) // self.chain.sizes[level]

    def _ranked(self, level: int, cost: Cost | None) -> Iterator[int]:
        """Free cells of a level, the cheapest first, then by number."""
        numbers = self._free[level]
        if cost is None and len(numbers) > 1 and not self._bad[level]:
            return iter((min(numbers),))
        by = (lambda n: (0.0, n)) if cost is None else (lambda n: (cost((level, n)), n))
        return iter(sorted(numbers, key=by))

    def _healthy(self, cell: Cell, level: int, cost: Cost | None) -> Cell | None:
        """A part of a free cell that is of a level and not bad; the cheapest where there are."""
        if cell[0] == level:
            return None if self.is_bad(cell) else cell
        parts = self.chain.inside(cell)
        if cost is not None:
            parts.sort(key=lambda part: (cost(part), part[1]))
        for part in parts:
            if (healthy := self._healthy(part, level, cost)) is not None:
                return healthy
        return None
