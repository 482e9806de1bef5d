"""How far bounds are from the best schedule that is known, workload by workload.

`python -m benchmarks.looseness` runs 300 jobs of every built-in workload under four policies and
writes the table of docs/explanation/bounds.md; workloads named behind it are only printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import weft
from weft.core.errors import WeftError
from weft.core.spec.registry import names
from weft.report.units import duration
from weft.traces.draft import Workload
from weft.traces.read import trace_part

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "bounds.md"
BEGIN, END = "<!-- looseness: made by benchmarks.looseness -->\n", "<!-- end of looseness -->"
POLICIES = ("fifo", "srtf", "las", "weft")
JOBS, LOAD, SEED = 300, 1.5, 1
CLUSTER = "16x8:v100"
OTHERS = {"colocated": "4x4:v100", "gavel": "8x4:v100+8x4:p100+8x4:k80"}
LINKED = ("cassini", "philly-net")  # 128 GPUs without links would say nothing of their own
ARGUMENTS = {"alone_jct_h": "alone", "srpt_jct_h": "SRPT", "busy_jct_h": "mean busy times"}
HEAD = ("workload", "bound", "argument", "best schedule", "looseness", *POLICIES)


def main(chosen: list[str]) -> None:
    """Print the row of each workload, and write all of them to the page."""
    rows = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for row in map(row_of, chosen or workloads()):
        print(row, flush=True)
        rows.append(row)
    if not chosen:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        table = "\n".join(rows)
        PAGE.write_text(f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}")
        print(f"wrote {PAGE.name}")


def workloads() -> Iterator[str]:
    """The built-in ones, each law once."""
    for name in names("trace"):
        again = "-syn-" in name or name == "scale-1m"
        if isinstance(trace_part(name), Workload) and not again and name not in LINKED:
            yield name


def row_of(name: str) -> str:
    """One row of the table."""
    cluster = OTHERS.get(name, CLUSTER)
    try:
        result = weft.compare(
            name, POLICIES, cluster, seeds=(SEED,), jobs=JOBS, load=LOAD, bound=True
        )
    except WeftError as error:
        return f"| {name} | {error.what} |" + " |" * (len(HEAD) - 2)
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
