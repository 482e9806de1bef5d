"""A tree over recurring groups of jobs (Weng et al., "MLaaS in the Wild", NSDI 2022).

Two thirds of PAI's tasks recur: what their submitters change tells which belong together. The tree
splits by the mean length of a job's group and user, and by its GPUs. It is grown again when there
are a fifth more ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, inf, log
from typing import Any, Literal

import numpy as np

from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import DueFit
from weft.core.model.job import Job
from weft.predict.by_job import Fitted
from weft.predict.traits import group_of
from weft_papers.qssf.cart import Node, follow, from_plain, grow, to_plain

FEWEST = 20  # ends before the first tree
MORE = 0.2  # of the ends of the last tree that a new one is grown after
MOST = 5_000
BY = {"user": 1, "group-user": 2, "group-user-gpus": 3}


End = tuple[str, str, float, float]  # user, group, GPUs, ln of the length
Means = dict[str, tuple[float, float]]  # count and sum of ln of lengths, by whose they are


@dataclass
class PaiGroup(Fitted):
    """Length by group, user and GPUs, from a regression tree of logarithms.

    `by` says what it splits by: `user`, `group-user` or `group-user-gpus`, as in PAI's simulator.
    """

    by: Literal["user", "group-user", "group-user-gpus"] = "group-user-gpus"

    label = "pai-group"

    def __post_init__(self) -> None:
        super().__init__()
        self._ends: list[End] = []
        self._seen = 0
        self._fitted = 0  # ends when a tree was due last
        self._tree: Node | None = None
        self._means: Means = {}

    def estimate(self, job: Job) -> float:
        """Estimate by the tree; before there is one, by the mean of all."""
        if self._tree is not None:
            features = _features(self._means, *_traits(job))[: BY[self.by]]
            return exp(follow(self._tree, np.array(features)))
        if not self._ends:
            return inf
        return exp(sum(end[3] for end in self._ends) / len(self._ends))

    def note_end(self, ended: Ended) -> None:
        """One more end; a new tree where there are enough."""
        self._ends.append((*_traits(ended.job), log(max(ended.length, 1.0))))
        self._seen += 1
        del self._ends[: -2 * MOST]
        if self._seen >= max(FEWEST, self._fitted + MORE * min(self._fitted, MOST)):
            self._fitted = self._seen
            self._note_due()

    def _fit(self) -> DueFit:
        ends = self._ends[: len(self._ends) - (self._seen - self._fitted)][-MOST:]
        return DueFit(self._fitted, partial(fit_groups, ends, self._fitted, BY[self.by]))

    def _use(self, model: Any) -> None:
        self._tree = from_plain(model["tree"])
        self._means = {key: (float(n), float(total)) for key, (n, total) in model["means"].items()}

    def save(self) -> Any:
        """The ends, how many of them the tree is grown from, and the tree."""
        ends = {"ends": self._ends, "seen": self._seen, "fitted": self._fitted}
        return {**ends, "fit": self.save_fit()}

    def load(self, saved: Any) -> None:
        self._ends = [(str(u), str(g), float(n), float(y)) for u, g, n, y in saved["ends"]]
        self._seen = saved.get("seen", len(self._ends))
        self._fitted = saved["fitted"]
        self.load_fit(saved.get("fit"))


def fit_groups(ends: Sequence[End], count: int, by: int) -> dict[str, Any]:
    """Means of users and groups, and a tree over them, in plain values."""
    means: Means = {}
    for user, group, _, y in ends:
        for key in ("", f"user {user}", f"group {group}"):
            known, total = means.get(key, (0.0, 0.0))
            means[key] = known + 1.0, total + y
    rows = [_features(means, user, group, gpus, without=y)[:by] for user, group, gpus, y in ends]
    tree = grow(np.array(rows), np.array([end[3] for end in ends]))
    return {"ends": count, "means": means, "tree": to_plain(tree)}


def _features(
    means: Means, user: str, group: str, gpus: float, without: float | None = None
) -> list[float]:
    """Mean of the user's and the group's ends, less the job's own; GPUs."""
    whose = (f"user {user}", f"group {group}")
    return [*(_mean(means, key, without) for key in whose), gpus]


def _mean(means: Means, key: str, without: float | None) -> float:
    count, total = means.get(key, (0.0, 0.0))
    if without is not None:
        count, total = count - 1.0, total - without
    if count <= 0.0:
        count, total = means[""]
    return total / count


def _traits(job: Job) -> tuple[str, str, float]:
    named = job.model or job.app
    if job.launch is not None and job.launch.command:
        named = group_of(job.launch)
    return job.owner, named, job.demand.gpus * job.demand.share
