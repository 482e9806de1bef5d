"""How running jobs of a simulation can be put to sleep, in the words that people type."""

from __future__ import annotations

from weft.core.asleep.rules import StopRules
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job
from weft.core.stops import SLEEPS, Rung
from weft.sim.asleep import drawn_gb


def read_stops(text: str) -> frozenset[Rung]:
    """The rungs that are named; InvalidConfig for a name that is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {str(rung): rung for rung in SLEEPS}
    if wrong := [name for name in names if name not in known]:
        raise InvalidConfig(
            f"stops: {wrong[0]!r} is not a way to put jobs to sleep",
            hint="--stops takes freeze, suspend or freeze,suspend",
        )
    return frozenset(known[name] for name in names)


def stop_rules(text: str, cluster: Cluster) -> StopRules | None:
    """What is possible on a cluster; None where every stop is a checkpoint."""
    rungs = read_stops(text)
    if not rungs:
        return None

    def memory(job: Job, on: Allocation) -> float:
        at = cluster.index.get(on.slices[0].node)
        return drawn_gb(job, cluster.nodes[at].device_gb if at is not None else 0.0)

    return StopRules(rungs, memory=memory, all_save=True)
