"""The space that a sweep searches, and the points of it that its trials try."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, product
from typing import Literal

from weft.frozen import frozen

Value = bool | int | float | str
DIGITS = 6  # of a number that was drawn: more would only be harder to read


@frozen
class Range:
    """All numbers from `low` to `high`: alike by difference or by ratio, or whole ones."""

    low: float
    high: float
    kind: Literal["uniform", "log", "int"] = "uniform"

    def at(self, part: float) -> float | int:
        """The number that this part of the range is below; 0 for `low`."""
        if self.kind == "int":
            return min(int(self.low + part * (self.high - self.low + 1)), int(self.high))
        if self.kind == "log":
            return self.rounded(self.low * (self.high / self.low) ** part)
        return self.rounded(self.low + part * (self.high - self.low))

    def rounded(self, value: float) -> float | int:
        """A number of this range with as many digits as people read."""
        if self.kind == "int":
            return int(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def spread(self, count: int) -> Sequence[float | int]:
        """`count` numbers, both ends among them; fewer where there are not as many."""
        if count == 1:
            return (self.at(0.5),)
        parts = [place / (count - 1) for place in range(count)]
        if self.kind == "int":
            steps = (round(self.low + part * (self.high - self.low)) for part in parts)
            return tuple(dict.fromkeys(steps))
        return tuple(map(self.at, parts))


Space = Mapping[str, Sequence[Value] | Range]


def draw(space: Space, seed: int, index: int) -> dict[str, Value]:
    """The parameters of a trial, by chance: the same for the same seed and index.

    Each depends on its own name alone, so that another parameter leaves the others as they were.
    """
    return {name: _pick(space[name], f"{seed} {index} {name}") for name in space}


def _pick(values: Sequence[Value] | Range, key: str) -> Value:
    # A generator for each took four times as long: one request may have 64,000 of them.
    part = int.from_bytes(blake2b(key.encode(), digest_size=6).digest()) / 2**48
    return values.at(part) if isinstance(values, Range) else values[int(part * len(values))]


def lay_grid(space: Space, trials: int) -> Iterator[dict[str, Value]]:
    """The combinations of all values, ranges as finely divided as `trials` allows.

    Nothing if the lists alone have more combinations.
    """
    listed = math.prod(len(values) for values in space.values() if not isinstance(values, Range))
    ranges = sum(isinstance(values, Range) for values in space.values())
    count = _largest_root(trials // listed, ranges) if ranges else 1
    if count == 0 or listed > trials:
        return
    axes = [
        values.spread(count) if isinstance(values, Range) else values for values in space.values()
    ]
    for point in product(*axes):
        yield dict(zip(space, point, strict=True))


def _largest_root(whole: int, power: int) -> int:
    """The largest number whose power is not above `whole`."""
    root = 0
    while (root + 1) ** power <= whole:
        root += 1
    return root


def write_value(value: Value) -> str:
    """A parameter as the text that a job gets."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}"


def choose(space: Space, kind: str, trials: int, seed: int) -> list[dict[str, Value]]:
    """The parameters of trials that are chosen before any of them ran."""
    if kind == "grid":
        return [*islice(lay_grid(space, trials), trials)]
    return [draw(space, seed, index) for index in range(trials)]
