"""A policy in one file: small gangs first, but nobody waits for more than a few hours.

Run it with `python examples/own_policy.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import weft
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.pieces.pack import pack
from weft.testing import check_policy


@dataclass(frozen=True, slots=True)
class Patient:
    """Run the smallest gangs; a job that has waited `patience_h` hours goes to the front."""

    patience_h: float = 4.0

    about = About("patient", "an example")

    def decide(self, view: View) -> Plan:
        """Rank by whether the patience is over, then by size; the overdue first come."""
        left = 3600.0 * self.patience_h - view.waited()
        overdue = left <= 0.0
        size = np.where(overdue, 0.0, view.table.need)
        plan = pack(view, view.ranked(np.where(overdue, 0.0, 1.0), size))
        soon = left[view.waiting() & ~overdue].min(initial=np.inf)
        wake_at = view.now + max(float(soon), 1.0) if np.isfinite(soon) else None
        return Plan(plan.changes, wake_at=wake_at)


def main() -> None:
    check_policy(Patient())
    result = weft.compare("philly", ["fifo", "tiresias", Patient()], "8x8:v100", jobs=400, load=1.1)
    print(f"{'policy':<10} {'avg JCT':>8} {'p99 JCT':>8} {'avg wait':>8} {'restarts':>8}")
    for policy in result.outcomes:
        hours = [result.mean(policy, m) for m in ("avg_jct_h", "p99_jct_h", "avg_queue_h")]
        restarts = result.mean(policy, "restarts_per_job")
        print(f"{policy:<10} " + " ".join(f"{h:>6.2f} h" for h in hours) + f" {restarts:>8.2f}")


if __name__ == "__main__":
    main()
