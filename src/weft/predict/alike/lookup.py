"""Samples of many groups in flat arrays, so that thousands of jobs are looked up at once.

A group's block holds its lengths in order, with running sums of weights, of their squares and of
weight times length. Everything that is asked of a blend (mean, quantiles, index) follows from these
sums at a length, and a length is found by halving, all rows and groups together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.predict.alike.mixture import Block, Sample
from weft.predict.traits import Key

Ids = NDArray[np.intp]
NOBODY = 0  # the id of a group without samples


class Sums(NamedTuple):
    """Up to a length, or above one: weight, squares of weights, weight times length."""

    w: Floats
    w2: Floats
    wx: Floats

    def less(self, other: Sums) -> Sums:
        """What is in these and not in others."""
        return Sums(self.w - other.w, self.w2 - other.w2, self.wx - other.wx)


class Lookup:
    """Blocks by number of the group; a group keeps its number for good."""

    def __init__(self) -> None:
        self._ids: dict[Key, int] = {}
        self._new: set[Key] = set()  # asked for, and not filled yet
        self._start: Ids = np.zeros(64, dtype=np.intp)
        self._size: Ids = np.zeros(64, dtype=np.intp)
        self._room: Ids = np.zeros(64, dtype=np.intp)
        self._cells: Floats = np.zeros((4, 1024))  # lengths and the three sums
        self._cells[0, 0] = -np.inf
        self._used = 1

    def __len__(self) -> int:
        return len(self._ids)

    def number(self, key: Key) -> int:
        """The number of a group, a new one if it was not asked for before."""
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self._ids) + 1
            self._new.add(key)
            if known >= len(self._start):
                self._start = np.concatenate([self._start, np.zeros_like(self._start)])
                self._size = np.concatenate([self._size, np.zeros_like(self._size)])
                self._room = np.concatenate([self._room, np.zeros_like(self._room)])
        return known

    def refresh(self, changed: set[Key], sample: Callable[[Key], Sample | None]) -> None:
        """Bring the groups up to date that were asked for: those that changed, and new ones."""
        for key in self._new | (changed & self._ids.keys()):
            self._put(key, sample(key))
        self._new.clear()
        changed.clear()

    def _put(self, key: Key, sample: Sample | None) -> None:
        """The samples of a group are now these; None: it has none any more."""
        number = self._ids[key]
        count = 0 if sample is None else len(sample.x)
        if count > self._room[number]:
            self._make_room(number, count)
        self._size[number] = count
        if sample is None:
            return
        order = np.argsort(sample.x, kind="stable")
        x, w = sample.x[order], sample.w[order]
        block = self._cells[:, self._start[number] : self._start[number] + count + 1]
        block[0, 0], block[0, 1:] = -np.inf, x
        block[1:, 0] = 0.0
        np.cumsum([w, w * w, w * x], axis=1, out=block[1:, 1:])

    def _make_room(self, number: int, count: int) -> None:
        room = max(4, 1 << (count - 1).bit_length())
        while self._used + room + 1 > self._cells.shape[1]:
            self._cells = np.concatenate([self._cells, np.zeros_like(self._cells)], axis=1)
        self._start[number], self._room[number] = self._used, room
        self._used += room + 1

    def block(self, key: Key) -> Block:
        """The samples of a group that was refreshed."""
        x, w, w2, _ = self.cells(self._ids[key])
        return Block(x, w, w2)

    def cells(self, number: int) -> Floats:
        """The block of a group: lengths and the three sums."""
        start, size = int(self._start[number]), int(self._size[number])
        return self._cells[:, start : start + size + 1]

    def sums(self, ids: Ids) -> Sums:
        """All of each group."""
        at = self._start[ids] + self._size[ids]
        return Sums(*self._cells[1:].take(at, axis=1))

    def sums_to(self, ids: Ids, x: Floats) -> Sums:
        """Of each group what is not above a length; `x` has the shape of `ids`."""
        at = self._start.take(ids) + self._counts(ids, x)
        return Sums(*self._cells[1:].take(at, axis=1))

    def next_above(self, ids: Ids, x: Floats) -> Floats:
        """Of each group the shortest length above a length; infinite where there is none."""
        count = self._counts(ids, x)
        size = self._size[ids]
        above = self._cells[0, self._start[ids] + np.minimum(count + 1, size)]
        return np.where(count < size, above, np.inf)

    def _counts(self, ids: Ids, x: Floats) -> Ids:
        """How many lengths of each group are not above `x`: by halving, everywhere at once."""
        start, size = self._start.take(ids), self._size.take(ids)
        count = np.zeros(ids.shape, dtype=np.intp)
        lengths = self._cells[0]
        step = 1 << max(int(size.max(initial=0)).bit_length() - 1, 0)
        while step:
            there = count + step
            fits = (there <= size) & (lengths.take(start + np.minimum(there, size)) <= x)
            count = np.where(fits, there, count)
            step >>= 1
        return count
