"""A tree over recurring groups of jobs (Weng et al., "MLaaS in the Wild", NSDI 2022).

Two thirds of PAI's tasks recur: what their submitters change tells which belong together. The tree
splits by the mean length of a job's group and user, and by its GPUs. It is grown again when there
are a fifth more ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log
from typing import Any, Literal

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.model.job import Job
from weft.core.state.table import Floats
from weft.predict.published.by_job import ByJob
from weft.predict.published.cart import Node, follow, grow
from weft.predict.traits import group_of

FEWEST = 20  # ends before the first tree
MORE = 1.2
MOST = 5_000
BY = {"user": 1, "group-user": 2, "group-user-gpus": 3}


@dataclass
class PaiGroup(ByJob):
    """Length by group, user and GPUs, from a regression tree of logarithms.

    `by` says what it splits by: `user`, `group-user` or `group-user-gpus`, as in PAI's simulator.
    """

    by: Literal["user", "group-user", "group-user-gpus"] = "group-user-gpus"

    label = "pai-group"

    def __post_init__(self) -> None:
        super().__init__()
        self._ends: list[tuple[str, str, float, float]] = []  # user, group, GPUs, ln of length
        self._fitted = 0
        self._tree: Node | None = None
        self._means: dict[str, list[float]] = {}

    def estimate(self, job: Job) -> float:
        """What the tree says; the mean of all before there is one."""
        if self._tree is not None:
            row = np.array(self._features(*_traits(job)))
            return exp(follow(self._tree, row))
        if not self._ends:
            return inf
        return exp(sum(end[3] for end in self._ends) / len(self._ends))

    def note_end(self, ended: Ended) -> None:
        """One more end; a new tree where there are enough."""
        self._ends.append((*_traits(ended.job), log(max(ended.length, 1.0))))
        if len(self._ends) >= max(FEWEST, MORE * self._fitted):
            self._ends = self._ends[-MOST:]
            self._fit()

    def _fit(self) -> None:
        self._fitted, self._means = len(self._ends), {}
        for user, group, _, y in self._ends:
            for key in ("", f"user {user}", f"group {group}"):
                sums = self._means.setdefault(key, [0.0, 0.0])
                sums[0], sums[1] = sums[0] + 1.0, sums[1] + y
        rows = [self._features(u, g, n, without=y) for u, g, n, y in self._ends]
        lengths: Floats = np.array([end[3] for end in self._ends])
        self._tree = grow(np.array(rows), lengths)

    def _features(
        self, user: str, group: str, gpus: float, without: float | None = None
    ) -> list[float]:
        """Mean of the user's and the group's ends, less the job's own; GPUs."""
        features = [
            self._mean(f"user {user}", without),
            self._mean(f"group {group}", without),
            gpus,
        ]
        return features[: BY[self.by]]

    def _mean(self, key: str, without: float | None) -> float:
        count, total = self._means.get(key, (0.0, 0.0))
        if without is not None:
            count, total = count - 1.0, total - without
        if count <= 0.0:
            count, total = self._means[""]
        return total / count

    def save(self) -> Any:
        """The ends, and how many of them the tree was grown from."""
        return {"ends": self._ends, "fitted": self._fitted}

    def load(self, saved: Any) -> None:
        """Take up what `save` gave: the same ends grow the same tree."""
        ends = [(str(u), str(g), float(n), float(y)) for u, g, n, y in saved["ends"]]
        self._ends = ends[: saved["fitted"]]
        if self._ends:
            self._fit()
        self._ends, self._fitted = ends, saved["fitted"]
        self._made.clear()


def _traits(job: Job) -> tuple[str, str, float]:
    """User, group and GPUs."""
    named = job.model or job.app
    if job.launch is not None and job.launch.command:
        named = group_of(job.launch)
    return job.owner, named, job.demand.gpus * job.demand.share
