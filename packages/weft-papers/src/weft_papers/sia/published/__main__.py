"""Sia and Gavel on the Sia artifact's workloads, beside the authors' own simulator.

    python -m weft_papers.sia.published [fidelity|homogeneous|decisions ...]

Theirs: GLPK_MI, 60 s rounds, p=-0.5, lambda=1.1; Gavel max-sum-throughput on tuned jobs, 360 s.
"""

from __future__ import annotations

import sys

from benchmarks.data import need

from weft_papers.sia.published import decisions, fidelity

PARTS = {"fidelity": fidelity.run, "homogeneous": fidelity.homogeneous, "decisions": decisions.run}


def main() -> int:
    data = need("sia/workloads", "sia/profiles")
    chosen = sys.argv[1:] or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        print(f"no part named {', '.join(unknown)}; there are {', '.join(PARTS)}")
        return 2
    return max(PARTS[part](data / "sia") for part in chosen)


if __name__ == "__main__":
    sys.exit(main())
