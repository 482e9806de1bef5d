"""All policies on four workloads: what each achieves, and what it had to know for it.

    python -m benchmarks.league [--quick] [POLICY ...]

Rigid gangs (philly), jobs that change size on GPUs of three kinds (pollux), kinds of different
speed (gavel), and small jobs that may share devices (colocated). Decision times are medians over
fifo's in the same run: the machine matters less. Results go to benchmarks/league.json, from which
`make docs` makes the tables of docs/reference/which-policy.md. `--quick` takes a third of the jobs
and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import weft
from weft.core.errors import WeftError
from weft.core.spec.registry import names
from weft.sim.result import Outcome

HERE = Path(__file__).parent
RESULTS = HERE / "league.json"


class Match(NamedTuple):
    """A workload: its cluster, number of jobs and offered load, and what is special about it."""

    workload: str
    cluster: str
    jobs: int
    load: float | None
    what: str


MATCHES = (
    Match("philly", "4x8:v100", 120, 1.2, "rigid gangs on GPUs of one kind"),
    Match("pollux", "sia-hetero", 30, 2.0, "jobs that can change size, GPUs of three kinds"),
    Match("gavel", "2x4:v100+2x4:p100+2x4:k80", 40, 1.2, "rigid jobs, kinds of different speed"),
    Match("colocated", "2x4:v100", 40, 1.2, "small jobs that may share devices"),
)
NUMBERS = ("avg_jct_h", "p99_jct_h", "makespan_h", "worst_ftf", "restarts_per_job")
# Searches of real length and rounds of seconds take minutes a workload and gain little here.
SHORTER = {
    "compose": "",  # as fifo
    "pollux": "pollux:generations=8,population=16,interval=600",
    "sia": "sia:interval=300",
    "slaq": "slaq:epoch=600",
    "smd": "smd:interval=300",
}


def main() -> int:
    """Run every policy on every workload and keep the numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a third of the jobs; nothing written")
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="by default all")
    chosen = parser.parse_args()
    policies = chosen.policies or [p for n in names("policy") if (p := SHORTER.get(n, n))]
    began, league = time.process_time(), []
    for match in MATCHES:
        jobs = match.jobs // 3 if chosen.quick else match.jobs
        print(f"== {match.workload}, {jobs} jobs on {match.cluster}: {match.what}")
        rows = play(match, policies, jobs)
        league.append({**match._asdict(), "jobs": jobs, "rows": rows})
    print(f"{time.process_time() - began:.0f} CPU s")
    if not chosen.quick and not chosen.policies:
        RESULTS.write_text(json.dumps(league, indent=1) + "\n")
        print(f"wrote {RESULTS.name}; `make docs` puts it into the page")
    return 0


def play(match: Match, policies: list[str], jobs: int) -> dict[str, dict[str, float | str]]:
    """Numbers of every policy on one workload; why where it cannot run there."""
    table: dict[str, dict[str, float | str]] = {}
    scale = 0.0
    for policy in ["fifo", *(name for name in policies if name != "fifo")]:
        try:
            result = weft.simulate(
                match.workload, policy, match.cluster, seed=1, jobs=jobs, load=match.load
            )
        except WeftError as error:
            table[policy] = {"cannot": error.what.splitlines()[0]}
            print(f"{policy:<40} cannot: {error.what.splitlines()[0]:.60}")
            continue
        outcome = next(iter(result.outcomes.values()))[0]
        took = outcome.decide_ms.get("p50") or 0.0
        scale = scale or took or 1.0
        table[policy] = {**_numbers(outcome), "decide": round(took / scale, 1)}
        shown = "  ".join(f"{table[policy].get(number, 0.0):>9}" for number in (*NUMBERS, "decide"))
        print(f"{policy:<40} {shown}  {outcome.predictor}")
    return table


def _numbers(outcome: Outcome) -> dict[str, float | str]:
    known = {number: outcome.metrics.get(number) for number in NUMBERS}
    numbers = {name: round(float(value), 3) for name, value in known.items() if value is not None}
    return {**numbers, "predictor": outcome.predictor}


if __name__ == "__main__":
    sys.exit(main())
