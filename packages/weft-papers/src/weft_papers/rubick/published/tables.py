"""Models in Rubick's artifact: speeds as it looks them up, and its table of plans."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from weft.core.model.execution import Execution
from weft_papers.rubick.published.data import read_laws, read_models

PER_NODE = 8
NEVER = -1.0  # speed of a size that nothing is known of

Plan = tuple[Any, ...]


class Entry(NamedTuple):
    """The best plan of a size, with the smallest size that is as fast."""

    rate: float
    plan: Plan | None
    gpus: int


class Speeds:
    """Measured seconds of an update of one model, as the authors look them up."""

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        self._rows = [
            (row["placement"], row["exec_plan"], float(row["iter_time_s"])) for row in rows
        ]
        cells: dict[tuple[int, int], list[float]] = {}
        for placement, _, seconds in self._rows:
            at = (len(placement), sum(map(int, placement)))
            cells.setdefault(at, []).append(seconds)
        self._means = {at: float(np.mean(cells[at])) for at in sorted(cells)}
        self._found: dict[tuple[tuple[int, ...], Any], float] = {}

    def seconds(self, placement: tuple[int, ...], plan: str | Plan) -> float:
        """Of an update: of this plan there, else of `ga` there, else between means of all plans."""
        if (placement, plan) not in self._found:
            self._found[placement, plan] = self._look_up(placement, plan)
        return self._found[placement, plan]

    def _look_up(self, placement: tuple[int, ...], plan: str | Plan) -> float:
        turned = min(placement[i:] + placement[:i] for i in range(len(placement)))
        name = "".join(map(str, turned))
        for wanted in (_name(plan), "ga"):
            for where, which, seconds in self._rows:
                if where == name and which == wanted:
                    return seconds
        points = np.array(list(self._means))
        between = LinearNDInterpolator(points, np.array(list(self._means.values())))
        return float(between([min(len(turned), 16), sum(turned)])[0])


def _name(plan: str | Plan) -> str | None:
    """A plan as the table has it; one that divides a model comes in a form that it has not."""
    if isinstance(plan, str):
        return plan
    return next((name for name in ("zero-dp", "zero-offload") if name in plan), None)


class RubickModel:
    """A model's speeds and plans, as the scheduler reads them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._law = name, read_laws(folder)[name]
        facts = read_models(folder)[name]
        self.batch: int = facts["global_batch"]
        self.normaliser: float = facts["normaliser_ex_per_s"]
        self.placements = {
            int(n): placement for n, placement in facts["gpus_to_placements"].items()
        }
        self.plans: dict[str, str] = facts["placement_to_plan"]
        self.speeds = read_speeds(folder, name)

    @cached_property
    def table(self) -> list[Entry]:
        """Return speeds by GPUs of one node, from 0 on."""
        entries = [Entry(NEVER, None, 0)]
        for gpus in range(1, PER_NODE + 1):
            best = self._best(gpus)
            before = entries[-1]
            entries.append(before if gpus > 1 and before.rate * 1.01 >= best.rate else best)
        return entries

    def rate(self, gpus: int) -> float:
        """Return the rate of the best plan; unknown beyond one node."""
        return self.table[gpus].rate if gpus <= PER_NODE else NEVER

    def _best(self, gpus: int) -> Entry:
        best = Entry(NEVER, None, gpus)
        for again, zero in product(("ga", "gc"), ("zero-offload", "zero-dp", "")):
            plan = Execution(
                gpus,
                zero=2 * (zero == "zero-dp"),
                offload=zero == "zero-offload",
                checkpointing=again == "gc",
            )
            if self._law.allows_plan(plan):
                rate = self.batch / (self._law.step_ms(plan) / 1000)
                best = Entry(rate, ("DP", again, zero), gpus) if rate > best.rate else best
        return best


def read_speeds(folder: Path, name: str) -> Speeds:
    """Read the speeds of one model."""
    with (folder / "placements.csv").open() as file:
        return Speeds([row for row in csv.DictReader(file) if row["model"] == name])


@cache
def read_model(folder: Path, name: str) -> RubickModel:
    """Read once."""
    return RubickModel(folder, name)
