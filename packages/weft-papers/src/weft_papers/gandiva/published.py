"""Measure the gains of Gandiva's mechanisms: `python -m weft_papers.gandiva.published`.

Early feedback is the paper's goal: how long until a job has had its first minute of a GPU. The
workload is the built-in `colocated`; a suspended job goes on for half a second, a migrated one
for what a restart costs.
"""

from __future__ import annotations

import sys

import numpy as np

import weft

POLICIES = (
    "fifo",
    "gandiva:pack=false,migrate=false",
    "gandiva:pack=false",
    "gandiva",
    "gandiva:pack=false,limit=4",
)


def main() -> int:
    """Print waits, completion times and busy GPUs; fail where turns bring no earlier feedback."""
    result = weft.compare("colocated", POLICIES, processes=1)
    waits = {}
    print(f"{result.workload} on {result.cluster}; minutes")
    print(f"{'policy':<34} {'to first start':>14} {'mean JCT':>9} {'p99 JCT':>8} {'makespan':>9}")
    for policy in POLICIES:
        (outcome,) = result.outcomes[policy]
        jobs, metrics = outcome.per_job, outcome.metrics
        waits[policy] = float(np.mean(np.array(jobs.start_s) - np.array(jobs.submit_s))) / 60
        print(
            f"{policy:<34} {waits[policy]:>14.1f} {60 * metrics['avg_jct_h']:>9.1f} "
            f"{60 * metrics['p99_jct_h']:>8.1f} {60 * metrics['makespan_h']:>9.1f}"
        )
    saved = 1.0 - waits["gandiva"] / waits["fifo"]
    print(f"first start {saved:.0%} sooner than first come, first served")
    return 0 if saved > 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
