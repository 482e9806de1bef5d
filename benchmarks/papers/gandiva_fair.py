"""Gandiva_fair on a cluster of two generations: `python -m benchmarks.papers.gandiva_fair`.

Four users with weights 1, 1, 2 and 4 keep enough jobs of one GPU on 16 slow and 16 fast GPUs; their
shares of GPU time must be within 5 % of ideal.
"""

from __future__ import annotations

import sys

import weft
from weft.core.model import Demand, Job, JobId
from weft.core.trace import Trace, Truth
from weft.sim.result import Outcome

CLUSTER = "4x4:k80+4x4:v100"
WEIGHTS = {"u0": 1.0, "u1": 1.0, "u2": 2.0, "u3": 4.0}
JOBS, LENGTH = 40, 40_000.0


def main() -> int:
    """Print the shares; fail where one is 5 % off."""
    shares = measure_shares()
    worst = max(abs(got / ideal - 1.0) for got, ideal in shares.values())
    for user, (got, ideal) in shares.items():
        print(f"{user}: {got:.4f} of the GPU time, ideal {ideal:.4f}")
    print(f"worst deviation {100 * worst:.2f} %")
    return 0 if worst <= 0.05 else 1


def measure_shares() -> dict[str, tuple[float, float]]:
    """GPU time of each user while all of them have enough jobs, and the ideal."""
    rows = [
        (Job(JobId(f"{user}-{i}"), 0.0, Demand(1), user=user), Truth(LENGTH))
        for user in WEIGHTS
        for i in range(JOBS)
    ]
    trace = Trace("users", tuple(rows), weights=WEIGHTS)
    outcome: Outcome = weft.simulate(
        trace, "gandiva_fair:trading=false", CLUSTER, restart_cost=5.0
    ).outcomes["gandiva_fair:trading=false"][0]
    first = min(float(e) for e in outcome.per_job.end_s)
    got = {one.user: float(one.received[one.time_s < 0.9 * first].sum()) for one in outcome.shares}
    whole, weight = sum(got.values()), sum(WEIGHTS.values())
    return {user: (got[user] / whole, WEIGHTS[user] / weight) for user in WEIGHTS}


if __name__ == "__main__":
    sys.exit(main())
