"""SLAQ against fair sharing: `python -m weft_papers.slaq.published`.

Time until 90 and 95 % of all that a loss falls, over 160 jobs drawn as `losses`, on 128 GPUs, at
three loads; a change of size costs nothing, as in the paper. Fair sharing gives every job as many
GPUs as any other, resized as SLAQ resizes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

import weft
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.pieces.place.resize import resize_all
from weft_papers.slaq.policy import Slaq

LOADS = (0.6, 0.9, 1.2)
SEEDS = (0, 1, 2)
EPOCH = 5.0


@dataclass(frozen=True, slots=True)
class FairSizes:
    """GPUs one by one to whoever has fewest: max-min fairness over jobs."""

    epoch: float = EPOCH

    @property
    def about(self) -> About:
        """Decides once an epoch, as SLAQ does."""
        return About("fair", "max-min fairness", controls=Controls.COUNT, every=self.epoch)

    def decide(self, view: View) -> Plan:
        """Equal sizes, up to what each job can use; newcomers wait where there are none left."""
        most = view.table.column(TableColumns.MAX)
        level, left = np.zeros(len(most)), view.cluster.gpus
        open_ = np.flatnonzero(level < most)
        while left >= 1 and len(open_):
            each = open_[: int(left)]
            level[each] += 1
            left -= len(each)
            open_ = np.flatnonzero(level < most)
        return resize_all(view, {row: int(n) for row, n in enumerate(level.tolist()) if n})


def main() -> int:
    """Print the table; fail where SLAQ is not sooner."""
    print(f"{'load':>5} {'policy':<6} {'t90 s':>8} {'t95 s':>8} {'JCT s':>8} {'decide ms':>9}")
    worse = False
    for load in LOADS:
        means = {}
        for policy in (FairSizes(), Slaq(epoch=EPOCH)):
            name = policy.about.name
            result = weft.compare("losses", [policy], load=load, seeds=SEEDS, restart_cost=0.0)
            row = [3600.0 * result.mean(name, m) for m in ("avg_t90_h", "avg_t95_h", "avg_jct_h")]
            took = float(np.mean([o.decide_ms["p95"] or 0.0 for o in result.outcomes[name]]))
            means[name] = row
            print(f"{load:>5} {name:<6} " + " ".join(f"{v:>8.1f}" for v in row) + f" {took:>9.1f}")
        less = [1.0 - s / f for s, f in zip(means["slaq"], means["fair"], strict=True)]
        print(f"{load:>5} less   " + " ".join(f"{100 * v:>7.1f}%" for v in less))
        worse |= less[0] <= 0.0
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
