"""Our own policy beside Sia, Pollux, Gavel and shortest-remaining-first, in the same run.

    python -m benchmarks.weft [restart|history|live|scale ...] [--quick] [--fresh] [--cached]
    python -m benchmarks.weft decisions
    python -m benchmarks.weft bounds [--quick] [--cached]
    python -m benchmarks.weft sharing [--quick]
    python -m benchmarks.weft sharing-decisions

Ratios of ours to theirs, file by file, on Sia's workloads with its published restart costs; `live`
with live resize as `benchmarks.live_resize` measured it. Parameters were tuned on philly 1-2 and
saturn 1 (docs/explanation/weft.md names the one exception). Results are kept in
out/weft_runs.json: a rerun goes on where it stopped, `--fresh` begins anew, `--cached` prints what
there is, and `--quick` takes two files a line. `sharing` is on clusters whose interference was
measured, with `weft:share=true`. `bounds` is how far policies are from what no schedule can beat.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from benchmarks.data import need
from benchmarks.weft import bounds, decisions, sharing, sharing_decisions
from benchmarks.weft.cases import PARTS
from benchmarks.weft.runs import Runs
from benchmarks.weft.table import HEAD, line

DECISIONS, SHARING, SHARED, BOUNDS = "decisions", "sharing", "sharing-decisions", "bounds"
OTHERS = (DECISIONS, SHARING, SHARED, BOUNDS)


def main() -> int:
    """Simulate and print a line for every comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weft", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}, or {', '.join(OTHERS)}"
    )
    parser.add_argument("--quick", action="store_true", help="two files a line")
    parser.add_argument("--fresh", action="store_true", help="forget what was simulated before")
    parser.add_argument("--cached", action="store_true", help="simulate nothing")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - {*PARTS, *OTHERS}:
        there = ", ".join((*PARTS, *OTHERS))
        parser.error(f"no part named {', '.join(sorted(unknown))}; there are {there}")
    if SHARED in asked.parts:
        return sharing_decisions.run()
    data = need(*(["gavel"] if SHARING in asked.parts else ["sia/workloads", "sia/profiles"]))
    if DECISIONS in asked.parts:
        return decisions.run(data / "sia")
    if SHARING in asked.parts:
        return sharing.run(data, quick=asked.quick)
    runs = Runs(data / "sia", fresh=asked.fresh)
    if BOUNDS in asked.parts:
        return bounds.run(data / "sia", runs, cached=asked.cached, quick=asked.quick)
    print(HEAD)
    for part in asked.parts or PARTS:
        for changed in PARTS[part]:
            pairs = changed.pairs[:2] if asked.quick else changed.pairs
            if asked.cached:
                pairs = tuple((a, b) for a, b in pairs if runs.has(a) and runs.has(b))
            if pairs:
                changed = replace(changed, pairs=pairs)
                print(
                    line(changed.name, [(runs.get(a), runs.get(b)) for a, b in pairs]), flush=True
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
