"""AntMan on Muri's traces, ours beside theirs: `python -m weft_papers.antman.published`.

First the baseline inside Muri's simulator (`authors/antman`, `--perf muri`, 64 V100) against
what its authors published. Then the fair version on the jobs of trace 3: what guaranteed jobs
lose to opportunistic ones, and what these get.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.data import need

import weft
from weft.core.model.job import Tier
from weft.core.model.trace import Trace
from weft.sim.result import Outcome, Result
from weft.traces.read import find
from weft_papers.published import find_authors_class

CLUSTER = "8x8:v100"
WITHIN = 0.01
MAY_LOSE = 0.05


def main() -> int:
    """Print both tables; fail where a number is further from theirs, or lost, than promised."""
    data = need("muri/traces", "muri/published_results.json")
    folder = data / "muri"
    wrong = as_published(folder)
    wrong += fair(find(str(folder / "traces" / "trace3.csv")))
    return 1 if wrong else 0


def as_published(folder: Path) -> int:
    """Average completion times of every trace; how many are too far off."""
    published = json.loads((folder / "published_results.json").read_text())["avg_jct"]["AntMan"]
    wrong = 0
    print(f"{'trace':<12} {'theirs (s)':>14} {'ours (s)':>14} {'differ':>8}")
    for name, theirs in published.items():
        path = folder / "traces" / f"{name}.csv"
        result = weft.simulate(path, find_authors_class("authors/antman"), CLUSTER, perf="muri")
        ours = 3600.0 * _only(result).avg_jct_h
        outside = abs(ours / theirs - 1.0) > WITHIN
        wrong += outside
        verdict = "  OUTSIDE" if outside else ""
        print(f"{name:<12} {theirs:>14.2f} {ours:>14.2f} {ours / theirs - 1.0:>+8.3%}{verdict}")
    return wrong


def fair(trace: Trace) -> int:
    """Guaranteed jobs with and without opportunistic ones; 1 if they lose too much."""
    tiers = {0.0: Tier.GUARANTEED, -1.0: Tier.OPPORTUNISTIC}
    jobs = tuple((replace(job, tier=tiers[job.priority]), truth) for job, truth in trace)
    firm = np.array([job.tier is Tier.GUARANTEED for job, _ in jobs])
    few = tuple(pair for pair in jobs if pair[0].tier is Tier.GUARANTEED)
    alone = _only(weft.simulate(Trace("guaranteed", few), "antman", CLUSTER))
    both = _only(weft.simulate(Trace("both", jobs), "antman", CLUSTER))
    exclusive = _only(weft.simulate(Trace("both", jobs), "fifo:backfill=true", CLUSTER))
    before = alone.per_job.jct_s.mean()
    with_others, loose = both.per_job.jct_s[firm].mean(), both.per_job.jct_s[~firm].mean()
    ran = (both.per_job.end_s - both.per_job.start_s)[firm]
    length = np.array([truth.length for _, truth in few])
    lost = with_others / before - 1.0
    print("\nfair version, trace 3, average completion time in hours")
    print(f"guaranteed jobs without others  {before / 3600:8.2f}")
    print(f"guaranteed jobs with others     {with_others / 3600:8.2f}  {lost:+.2%}")
    print(f"time they execute, over alone   {ran.sum() / length.sum():8.4f}")
    print(f"opportunistic jobs              {loose / 3600:8.2f}")
    print(f"all                             {both.avg_jct_h:8.2f}")
    print(f"all on devices of their own     {exclusive.avg_jct_h:8.2f}  (fifo:backfill=true)")
    return int(lost > MAY_LOSE)


def _only(result: Result) -> Outcome:
    return next(iter(result.outcomes.values()))[0]


if __name__ == "__main__":
    sys.exit(main())
