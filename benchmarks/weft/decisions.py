"""One whole decision of ours and of Sia at 64 and 2,048 GPUs, and how far it is from the bound."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from weft.app.simulate.setup import Setup
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import world_of
from weft.core.model.cluster import parse_cluster
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft_papers.sia.published.decisions import crowd

SIZES = ((1, 7), (1, 35), (32, 7), (32, 35))  # times Sia's cluster, jobs for each 64 GPUs
UNTIL_S = 300.0


def run(data: Path) -> int:
    """CPU milliseconds, median and the slowest of twenty, and gaps to the bound of the program.

    Ratios are those of medians to Sia's in the same run: those hold on a loaded machine as well.
    """
    head = f"{'median ms':>10} {'p95 ms':>8} {'gap':>10} {'to sia':>7}"
    print(f"{'policy':<6} {'GPUs':>6} {'jobs':>6} {head}")
    for scale, per_64 in SIZES:
        theirs = 0.0
        for name in ("sia", "weft"):
            gpus, jobs, took, gaps = measure(data, name, scale, per_64 * scale)
            slow = statistics.quantiles(took, n=20)[-1] if len(took) > 1 else took[0]
            middle, gap = statistics.median(took), statistics.median(gaps)
            theirs = theirs or middle
            cells = f"{middle:>10.1f} {slow:>8.1f} {gap:>10.5f} {middle / theirs:>7.2f}"
            print(f"{name:<6} {gpus:>6,} {jobs:>6,} {cells}", flush=True)
    return 0


def measure(
    data: Path, name: str, scale: int, jobs: int
) -> tuple[int, int, list[float], list[float]]:
    """Decisions while most of these jobs are there, all of them submitted at once."""
    cluster = parse_cluster(f"{6 * scale}x4:t4+{3 * scale}x8:rtx+{2 * scale}x8:a100")
    policy: Policy = build("policy", name)
    trace = crowd(data, scale, jobs)
    setup = Setup(trace, policy, profiles=str(data / "profiles"))
    driver = wire(world_of(setup, trace, cluster, policy.about), cluster, policy).driver
    took: list[float] = []
    gaps: list[float] = []

    def timed(decide: Callable[[View], Plan], view: View) -> Plan:
        began = time.process_time()
        plan = decide(view)
        if len(view.table) >= 0.8 * jobs:
            took.append(1e3 * (time.process_time() - began))
            gaps.append(plan.numbers.get("gap", 0.0))
        return plan

    driver._scheduler.timed = timed
    while driver._left and (now := driver._next_time()) <= UNTIL_S:
        driver._settle(now, driver._happening(now))
    return cluster.gpus, jobs, took[2:] or took, gaps
