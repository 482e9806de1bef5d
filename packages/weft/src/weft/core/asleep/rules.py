"""The ways in which a cluster can stop jobs, and what jobs hold meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from weft.core.model.job import Allocation, Job
from weft.core.stops import Rung
from weft.frozen import frozen

HOST_PART = 0.5  # of a node's memory for jobs that sleep
UNKNOWN_HOST_GB = 1.0  # what a job without GPUs is taken to hold where it was not measured

# GB that a job holds of each of its devices; None where unknown.
MemoryOf = Callable[[Job, Allocation], float | None]


@frozen
class StopRules:
    """The rungs of the ladder that there are here, and their bounds.

    Jobs that sleep hold at most `host_part` of a node's memory. `memory` tells what jobs hold of
    each device where they do not report it, and `all_save` that every job has checkpoints: both are
    for simulations.
    """

    rungs: frozenset[Rung]
    host_part: float = HOST_PART
    memory: MemoryOf | None = None
    all_save: bool = False


def rules_of(rungs: frozenset[Rung]) -> StopRules | None:
    """The rules of an engine; None where every stop is a restart."""
    return StopRules(rungs) if rungs else None
