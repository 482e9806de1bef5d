"""How far bounds are from the best schedule that is known, workload by workload.

`python -m benchmarks.looseness [WORKLOAD ...]` runs 300 jobs of every built-in workload, or of
those named, under four policies and writes their rows in the tables of docs/explanation/bounds.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import weft
from weft.core.errors import WeftError
from weft.core.spec.registry import names
from weft.report.units import duration, number
from weft.sim.result import Result
from weft.traces.draft import Workload
from weft.traces.read import trace_part

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "bounds.md"
BEGIN, END = "<!-- looseness: made by benchmarks.looseness -->\n", "<!-- end of looseness -->"
POLICIES = ("fifo", "srtf", "las", "weft")
JOBS, LOAD, SEED = 300, 1.5, 1
CLUSTER = "16x8:v100"
OTHERS = {"colocated": "4x4:v100", "gavel": "8x4:v100+8x4:p100+8x4:k80"}
LINKED = ("cassini", "philly-net")  # 128 GPUs without links would say nothing of their own
ARGUMENTS = {
    "alone_jct_h": "alone",
    "srpt_jct_h": "SRPT",
    "busy_jct_h": "mean busy times",
    "market_jct_h": "prices",
}
HEAD = ("workload", "bound", "argument", "best schedule", "looseness", *POLICIES)
FELT_BEGIN, FELT_END = "<!-- felt: made by benchmarks.looseness -->\n", "<!-- end of felt -->"
FELT = {
    "avg_queue_h": "mean wait",
    "short_queue_h": "wait of short jobs",
    "slowdown_10s": "slowdown, 10 s",
    "slowdown_10min": "slowdown, 10 min",
}


def main(chosen: list[str]) -> None:
    """Print the rows of each workload and put them into the page, where others stay."""
    for name in chosen or workloads():
        result = run(name)
        fill(BEGIN, END, row_of(name, result))
        if result is not None and result.bounds:
            fill(FELT_BEGIN, FELT_END, felt_row(name, result))


def fill(begin: str, end: str, row: str) -> None:
    """Put a row into the table between two marks, by its first cell."""
    print(row, flush=True)
    before, _, rest = PAGE.read_text().partition(begin)
    table, _, after = rest.partition(end)
    head, line, *rows = table.splitlines()
    name = row.split(" | ", 1)[0]
    others = [other for other in rows if other.split(" | ", 1)[0] != name]
    text = "\n".join([head, line, *sorted([*others, row])])
    PAGE.write_text(f"{before}{begin}{text}\n{end}{after}")


def workloads() -> Iterator[str]:
    """The built-in ones, each law once."""
    for name in names("trace"):
        again = "-syn-" in name or name == "scale-1m"
        if isinstance(trace_part(name), Workload) and not again and name not in LINKED:
            yield name


def run(name: str) -> Result | None:
    """All policies on a workload; None if it cannot be drawn."""
    cluster, result = OTHERS.get(name, CLUSTER), None
    for policies in (POLICIES[:1], POLICIES):  # the others only if there is a bound
        try:
            result = weft.compare(
                name, policies, cluster, seeds=(SEED,), jobs=JOBS, load=LOAD, bound=True
            )
        except WeftError:
            return None
        if not result.bounds:
            break
    return result


def felt_row(name: str, result: Result) -> str:
    """The bounds of waits and slowdowns, and the least that any of the policies has."""
    cells = []
    for metric in FELT:
        best = min(result.mean(policy, metric) for policy in POLICIES)
        shown = duration if metric.endswith("_h") else number
        cells.append(f"{shown(result.bound(metric))}, {shown(best)}")
    return f"| {name} | {' | '.join(cells)} |"


def row_of(name: str, result: Result | None) -> str:
    """One row of the table of completion times."""
    if result is None:
        return f"| {name} | cannot be drawn |" + " |" * (len(HEAD) - 2)
    if not result.bounds:
        return f"| {name} | none |" + " |" * (len(HEAD) - 2)
    took = {policy: result.mean(policy, "avg_jct_h") for policy in POLICIES}
    best = min(took, key=lambda policy: took[policy])
    bound = result.bound()
    cells = (
        name,
        duration(bound),
        ARGUMENTS[max(ARGUMENTS, key=result.bound)],
        best,
        f"{took[best] / bound:.3f}",
        *(f"{hours / bound:.3f}" for hours in took.values()),
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
