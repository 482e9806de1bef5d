"""Which truth about speeds a simulation has, and what the scheduler believes of it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from weft.app.setup import Setup
from weft.core.cluster import Cluster
from weft.core.policy import Policy
from weft.core.ports import Beliefs, PerfModel
from weft.core.trace import Trace
from weft.perf.adaptive import Adaptive
from weft.perf.beliefs import FittedBeliefs
from weft.perf.replay import Replay
from weft.perf.tables import ModelTable, read_tables


def speeds(
    setup: Setup, trace: Trace, cluster: Cluster, policy: Policy
) -> tuple[PerfModel, Beliefs | None]:
    """Measured tables if a folder was named, else recorded durations."""
    if not setup.profiles:
        return Replay(setup.restart_cost), None
    names = frozenset(job.model for job, _ in trace)
    models = _tables(setup.profiles, names, cluster.kinds)
    cap = bool(getattr(policy, "artifact", False))
    return Adaptive(models, setup.restart_cost), FittedBeliefs(models, cap_batch=cap)


@lru_cache(maxsize=2)
def _tables(folder: str, models: frozenset[str], kinds: tuple[str, ...]) -> dict[str, ModelTable]:
    return read_tables(Path(folder).expanduser(), models, kinds)
