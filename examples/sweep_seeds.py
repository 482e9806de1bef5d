"""Are two policies really different? Ask several seeds.

Run it with `python examples/sweep_seeds.py`.
"""

from __future__ import annotations

from statistics import mean, stdev

import weft

POLICIES = ("fifo:backfill=true", "srtf", "tiresias")
SEEDS = range(5)


def main() -> None:
    result = weft.compare(
        "philly", POLICIES, "8x8:v100", jobs=300, load=1.1, seeds=SEEDS, processes=1
    )
    print(f"average completion time in hours, {len(SEEDS)} seeds")
    print(f"{'policy':<20} {'mean':>6} {'+-':>6}  by seed")
    for policy, outcomes in result.outcomes.items():
        hours = [outcome.metrics["avg_jct_h"] for outcome in outcomes]
        each = " ".join(f"{h:6.2f}" for h in hours)
        print(f"{policy:<20} {mean(hours):6.2f} {stdev(hours):6.2f}  {each}")

    base = [o.metrics["avg_jct_h"] for o in result.outcomes["tiresias"]]
    rival = [o.metrics["avg_jct_h"] for o in result.outcomes["fifo:backfill=true"]]
    wins = sum(b < r for b, r in zip(base, rival, strict=True))
    print(f"tiresias beats fifo:backfill=true on {wins} of {len(base)} seeds")


if __name__ == "__main__":
    main()
