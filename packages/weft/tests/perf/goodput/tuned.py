"""Jobs that tune their batch, run to their end."""

from __future__ import annotations

from weft.core.model.job import Allocation, NodeId, Slice
from weft.perf.goodput.adaptive import AdaptiveJob


def on(*placement: int) -> Allocation:
    return Allocation(
        tuple(Slice(NodeId(f"n{i}"), tuple(range(g))) for i, g in enumerate(placement))
    )


def run(tuner: AdaptiveJob, now: float = 0.0) -> float:
    """Seconds until the job is done, asked again at every epoch's and round's end."""
    done = 0.0
    while done < tuner.length * (1.0 - 1e-9):
        pace = tuner.pace(done, 60.0 - now % 60.0)
        done += pace.rate * pace.seconds
        now += pace.seconds
    return now
