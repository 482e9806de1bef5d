"""Views and clusters in a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.core.events.event import Submitted
from weft.core.events.job_end import Ended
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.core.state.table import JobTable
from weft.perf.linear import LinearBeliefs
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.hinted_profile import profile_of

Waiting = tuple[str, int, float]


def cluster_of(gpus: int | str, node: int = 8, kind: str = "v100") -> Cluster:
    """A cluster of that many GPUs in nodes of at most `node`, or of a cluster string."""
    if isinstance(gpus, str):
        return parse_cluster(gpus)
    whole, rest = divmod(gpus, node)
    parts = [f"{whole}x{node}:{kind}"] * (whole > 0) + [f"1x{rest}:{kind}"] * (rest > 0)
    return parse_cluster("+".join(parts)) if parts else Cluster(())


def view_of(cluster: int | str | Cluster, *jobs: Waiting | Job, now: float = 0.0) -> View:
    """A view with jobs waiting: `("name", gpus, seconds left)` or Job objects.

    Seconds left are what `view.remaining()` answers.
    """
    machines = cluster if isinstance(cluster, Cluster) else cluster_of(cluster)
    state = State(machines)
    left: list[float] = []
    for entry in jobs:
        if isinstance(entry, Job):
            job, remaining = entry, entry.hints.get("duration_s", np.inf)
        else:
            name, gpus, remaining = entry
            job = Job(JobId(name), demand=Demand(gpus))
        state.fold(now, Submitted(job))
        left.append(remaining)
    return View(
        now,
        state.table,
        machines,
        state.free,
        Knowledge(FixedPredictor(left), LinearBeliefs(), Colocated(profile_of)),
    )


def with_knowledge(view: View, **parts: Any) -> View:
    """The view with other parts of its knowledge: predictor, beliefs, colocation or training."""
    return replace(view, knowledge=replace(view.knowledge, **parts))


class FixedPredictor(PointPredictor, NothingLearnt):
    """A predictor that repeats given numbers, by order of submission."""

    label = "told"
    asks = PredictorNeeds()

    def __init__(self, left: Sequence[float]) -> None:
        self._left = np.array(left, dtype=float)

    def remaining(self, table: JobTable, now: float) -> Floats:  # noqa: ARG002
        return self._left[table.seq.astype(np.intp)]

    def learn(self, ended: Ended) -> None:
        """Nothing to learn."""
