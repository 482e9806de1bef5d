"""Measured speeds of pairs on one GPU, from a table in the layout of Lucid's artifact.

Columns `model1, dataset1, batchsize1, amp1, speed1` and the same with 2: each member's
throughput as a part of its throughput alone (Hu et al., ASPLOS 2023).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile
from weft.frozen import frozen

COLUMNS = tuple(f"{name}{i}" for i in (1, 2) for name in ("model", "dataset", "batchsize", "amp"))


def tag_of(model: str, dataset: str, batch: str, amp: str) -> str:
    """What a workload of the table is called: a job of it has this as its model."""
    return f"{model}/{dataset}/{batch}/{amp}"


@frozen
class Pairs:
    """Speeds of two workloads beside each other, found in either order.

    Called with the profiles of a group it is what `Colocated.interfering` needs. Pairs that
    nobody measured run at full speed, as in the authors' simulator; of larger groups, which
    nobody measured either, each member has the product of its speeds beside the others.
    """

    speeds: Mapping[tuple[str, str], tuple[float, float]]

    def __call__(self, group: Sequence[Profile]) -> list[float]:
        """Speed of each member as a part of its speed alone."""
        speeds = [1.0] * len(group)
        for i, profile in enumerate(group):
            for j, other in enumerate(group):
                if i != j:
                    speeds[i] *= self.between(profile.tag, other.tag)[0]
        return speeds

    def between(self, tag: str, other: str) -> tuple[float, float]:
        """Speeds of two workloads beside each other; full ones of a pair nobody measured."""
        return self.known(tag, other) or (1.0, 1.0)

    def known(self, tag: str, other: str) -> tuple[float, float] | None:
        """Measured speeds of two workloads beside each other; None where nobody measured them."""
        if (speeds := self.speeds.get((tag, other))) is not None:
            return speeds
        back = self.speeds.get((other, tag))
        return None if back is None else (back[1], back[0])

    def average(self, tag: str) -> float | None:
        """Mean speed of a workload over all its measured partners; None where there are none."""
        own = [a for (first, _), (a, _) in self.speeds.items() if first == tag]
        own += [b for (_, other), (_, b) in self.speeds.items() if other == tag]
        return sum(own) / len(own) if own else None


def read_pairs(path: Path) -> Pairs:
    """The table at `path`."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InvalidConfig(
            f"cannot read pairs from {path}: {error.strerror}", hint="name a CSV file"
        ) from error
    speeds: dict[tuple[str, str], tuple[float, float]] = {}
    for number, row in enumerate(rows, start=2):
        missing = [name for name in (*COLUMNS, "speed1", "speed2") if not row.get(name)]
        if missing:
            raise InvalidConfig(
                f"{path}, line {number}: no {', '.join(missing)}",
                hint="columns are model, dataset, batchsize, amp and speed, each with 1 and 2",
            )
        try:
            pair = float(row["speed1"]), float(row["speed2"])
        except ValueError as error:
            raise InvalidConfig(f"{path}, line {number}: {error}") from error
        names = [row[name] for name in COLUMNS]
        speeds[tag_of(*names[:4]), tag_of(*names[4:])] = pair
    return Pairs(speeds)
