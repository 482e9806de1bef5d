"""All policies on all built-in workloads; writes docs/reference/league.md.

    python -m benchmarks.league [POLICY ...] [--workloads NAME ...] [--seeds N] [--limit SECONDS]
        [--processes N]

Runs what is missing in benchmarks/league/results.json or followed from other code, and makes the
page and its pictures from it. Policies named here, such as mine.py:Mine, are only printed.
`--page` runs nothing, `--fresh` runs everything.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.league.digests import of_entry
from benchmarks.league.matches import MATCHES, Entry, entries
from benchmarks.league.page import print_standings, write_page
from benchmarks.league.play import RESULTS, Results, play


def main() -> int:
    """Bring the league up to date."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league", description=__doc__)
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="printed beside all others")
    parser.add_argument("--workloads", nargs="+", metavar="NAME", help="by default all")
    parser.add_argument("--seeds", type=int, default=3, help="drawn traces per workload")
    parser.add_argument("--limit", type=float, default=10.0, help="CPU seconds per simulation")
    parser.add_argument("--processes", type=int, default=1, help="policies that run at once")
    parser.add_argument("--page", action="store_true", help="make the page, run nothing")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    asked = parser.parse_args()
    if unknown := {*(asked.workloads or ())} - {match.workload for match in MATCHES}:
        parser.error(f"no workload {', '.join(sorted(unknown))} in the league")
    if asked.fresh and not asked.policies:
        RESULTS.unlink(missing_ok=True)
    results, began, ran = Results(), time.process_time(), 0
    if asked.policies:
        results = Results(Path(tempfile.mkdtemp()) / "results.json")
        results.rows, results.matches = Results().rows, Results().matches
    playing = [Entry(spec) for spec in asked.policies] or entries()
    coded = {} if asked.page else {entry: of_entry(entry) for entry in playing}
    for match in () if asked.page else MATCHES:
        if asked.workloads and match.workload not in asked.workloads:
            continue
        seeds = (*range(1, asked.seeds + 1),)
        for line in play(match, coded, results, seeds, asked.limit, asked.processes):
            ran += 1
            print(line, flush=True)
    print(f"{ran} rows ran, {time.process_time() - began:.0f} CPU s")
    if asked.policies:
        print_standings(results)
    else:
        print("\n".join(f"wrote {path.name}" for path in write_page(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
