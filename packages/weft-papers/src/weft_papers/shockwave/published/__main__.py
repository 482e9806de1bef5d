"""Shockwave's traces, ours beside theirs: `python -m weft_papers.shockwave.published [PART ...]`.

Parts are `canonical`, the table of results that the authors ship; `scale`, CPU seconds of a plan
and their three larger traces; `decisions`, the plans alone; and `packing`, what plans by counts
lose in large windows. Without any, the first two.
"""

from __future__ import annotations

import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.data import need

from weft.core.model.job import Job
from weft.testing import view_of
from weft_papers.published import build_named
from weft_papers.shockwave.published.packing import show_packing
from weft_papers.shockwave.published.replay import GROUNDS, ReplayOutcome, load, run

EXPECTED = Path(__file__).parent / "expected.toml"
COLUMNS = ("makespan", "jct", "rho", "unfair")
OTHERS = (
    "authors/gavel:reset=1000,round=120",
    "authors/gavel:reset=1000,round=120,objective=finish-time-fairness",
    "allox, as theirs",
    "gandiva_fair, as theirs",
)
OURS = ("authors/shockwave", "shockwave", "shockwave:shorter=2")


def main() -> int:
    """Run the parts that were named; fail where one is too far from what is expected."""
    if sys.argv[1:] == ["packing"]:  # needs no data
        return show_packing()
    data = need("shockwave")
    folder, expected = data / "shockwave", tomllib.loads(EXPECTED.read_text())
    parts = {"canonical": show_canonical, "scale": show_scale, "decisions": show_decisions}
    wrong = 0
    for name in sys.argv[1:] or ("canonical", "scale"):
        wrong += parts[name](folder, expected)
    return 1 if wrong else 0


def show_canonical(folder: Path, expected: dict[str, Any]) -> int:
    """Every row of the authors' table, the order of policies in each column, and ours."""
    wrong, outcomes = 0, {}
    print(f"{'':<72}{'makespan':>10}{'JCT':>10}{'worst rho':>10}{'> 1.05':>8}")
    for row in expected["canonical"]:
        ours = outcomes[row["policy"]] = run(folder, 120, row["policy"])
        _print_line(row["policy"], ours)
        print(f"{'  theirs':<72}{_cells(*(row[name] for name in COLUMNS))}")
        for name in ("makespan", "jct"):
            off = getattr(ours, name) / row[name] - 1.0
            outside = abs(off) > row["within"]
            wrong += outside
            print(f"{'  ' + name:<40}{off:>+8.1%}{'  OUTSIDE' if outside else ''}")
    for name in COLUMNS:
        theirs = sorted(expected["canonical"], key=lambda row: row[name])
        ours_order = sorted(outcomes, key=lambda policy: getattr(outcomes[policy], name))
        same = [row["policy"] for row in theirs] == ours_order
        wrong += not same
        print(f"order by {name}: {'as theirs' if same else 'ANOTHER: ' + ' < '.join(ours_order)}")
    better = expected["better"]
    ours = run(folder, 120, better["policy"])
    _print_line(better["policy"], ours)
    return wrong + int(ours.rho > better["rho"]) + int(ours.jct > better["jct"])


def show_scale(folder: Path, expected: dict[str, Any]) -> int:
    """Plans, the larger traces to their end, and makespans of the others over Shockwave's."""
    wrong = show_decisions(folder, expected)
    for jobs in (220, 460, 900):
        print(f"{jobs} jobs on {GROUNDS[jobs].gpus} GPUs")
        outcomes = {}
        for policy in (*OURS, *OTHERS):
            outcomes[policy] = run(folder, jobs, policy)
            _print_line("  " + policy, outcomes[policy])
        least = min(outcomes[policy].makespan for policy in OTHERS)
        for policy in OURS:
            ratio = least / outcomes[policy].makespan
            print(f"  {policy}: makespan {ratio:.2f} times better than the best of the others")
        wrong += least / outcomes[OURS[0]].makespan < expected["scale"]["ratio"]
    return wrong


def show_decisions(folder: Path, expected: dict[str, Any]) -> int:
    """CPU seconds of one plan, with every job of a trace waiting."""
    wrong = 0
    for jobs, limit in expected["decisions"].items():
        waiting: list[Job] = [job for job, _ in load(folder, int(jobs)).jobs]
        cluster = f"1x{GROUNDS[int(jobs)].gpus}:v100"
        for policy in OURS:
            view = view_of(cluster, *waiting, now=3600.0)
            began = time.process_time()
            build_named(policy).decide(view)
            took = time.process_time() - began
            wrong += took > limit
            print(f"plan for {jobs:>4} jobs, {policy:<32}{took:>7.2f} s of CPU, at most {limit:g}")
    return wrong


def _print_line(name: str, ours: ReplayOutcome) -> None:
    cells = _cells(ours.makespan, ours.jct, ours.rho, ours.unfair)
    print(f"{name:<72}{cells}  slowest decision {ours.slowest_s:.2f} s", flush=True)


def _cells(makespan: float, jct: float, rho: float, unfair: float) -> str:
    return f"{makespan:>10,.0f}{jct:>10,.0f}{rho:>10.2f}{unfair:>7.1f} %"


if __name__ == "__main__":
    sys.exit(main())
