"""The last ends of each group of jobs, oldest first; unused groups are dropped."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.frozen import frozen
from weft.predict.alike.mixture import WeightedLengths, decayed
from weft.predict.traits import OF_TENANT, Key

FEWEST_S = 0.5  # no end is shorter: a length of 0 says nothing of how many times as long others are


@frozen
class Ring:
    """Lengths of the last ends of one group, whether each failed, and when the newest was.

    `count` is of all ends that the group ever had.
    """

    lengths: tuple[float, ...] = ()
    failed: tuple[bool, ...] = ()
    newest: float = 0.0
    count: int = 0

    def add(self, length: float, failed: bool, at: float, most: int) -> Ring:
        """With one more end; the oldest leaves when there are more than `most`."""
        lengths = (*self.lengths[-most + 1 :], max(length, FEWEST_S))
        return Ring(lengths, (*self.failed[-most + 1 :], failed), at, self.count + 1)

    def sample(self, half: float) -> WeightedLengths:
        """Lengths, newest last, with weights that halve every `half` ends."""
        return WeightedLengths(np.array(self.lengths), decayed(len(self.lengths), half))

    def streak(self) -> int:
        """Failures in a row, up to the newest end."""
        row = (i for i, failed in enumerate(reversed(self.failed)) if not failed)
        return next(row, len(self.failed))


NO_ENDS = Ring()


def is_of(key: Key, tenant: str) -> bool:
    """True if a group is of this tenant's jobs alone."""
    return key[0] in OF_TENANT and key[1] == tenant


class Rings:
    """All groups that have ends, least recently touched first."""

    def __init__(self, most: int, groups: int) -> None:
        self._most, self._groups = most, groups
        self._rings: dict[Key, Ring] = {}
        self.changed: set[Key] = set()
        self.ends = 0
        self.first_at = 0.0

    def add(self, keys: tuple[Key, ...], length: float, failed: bool, at: float) -> None:
        """A job of these groups ended."""
        self.first_at = at if not self.ends else self.first_at
        self.ends += 1
        for key in keys:
            ring = self._rings.pop(key, NO_ENDS)
            # To the end: the most recently touched.
            self._rings[key] = ring.add(length, failed, at, self._most)
            self.changed.add(key)
        while len(self._rings) > self._groups:
            key = next(iter(self._rings))
            del self._rings[key]
            self.changed.add(key)

    def __deepcopy__(self, _memo: object) -> Rings:
        twin = Rings(self._most, self._groups)  # rings never change, only their table does
        twin._rings, twin.ends, twin.first_at = dict(self._rings), self.ends, self.first_at
        twin.changed = set(self.changed)
        return twin

    def get(self, key: Key) -> Ring | None:
        """The ends of a group; None where there are none."""
        return self._rings.get(key)

    def change_all_of(self, tenant: str) -> None:
        """The weights of a tenant's groups are others than before."""
        self.changed |= {key for key in self._rings if is_of(key, tenant)}

    def save(self) -> Any:
        return {
            "ends": self.ends,
            "first_at": self.first_at,
            "rings": [
                [
                    list(key),
                    list(ring.lengths),
                    [int(f) for f in ring.failed],
                    ring.newest,
                    ring.count,
                ]
                for key, ring in self._rings.items()
            ],
        }

    def load(self, saved: Any) -> None:
        rings = {
            tuple(key): Ring((*map(float, lengths),), (*map(bool, failed),), float(newest), count)
            for key, lengths, failed, newest, count in saved["rings"]
        }
        self._rings, self.ends, self.first_at = rings, saved["ends"], saved["first_at"]
        self.changed = set(rings)
