"""`weft` on jobs of one size, beside other orders, where people have to wait.

    python -m benchmarks.plain_jobs [TRACE ...] [--seeds 5 6 7] [--jobs 400] [--only NAME ...]

Jobs are drawn as published traces were (Helios' four clusters, Philly, PAI, ITP, Acme's two), on
64 or 128 GPUs of one kind, at twice what these can do while jobs come. Choices were made on seeds
11 to 13; the default seeds were only measured. Results are kept in out/plain_jobs.json: a rerun
goes on where it stopped, `--fresh` begins anew, `--cached` prints what there is.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.plain_jobs.cells import Cell, Store
from benchmarks.plain_jobs.table import Row, print_tables
from weft.core.spec.registry import names

LARGE, SMALL = "16x8:v100", "8x8:v100"
# Offered load, and a cluster that so few jobs fill; gangs of the first and the last two are larger.
WORKLOADS = {
    "venus": (2.0, LARGE),
    "earth": (2.0, SMALL),
    "saturn": (2.0, SMALL),
    "uranus": (2.0, SMALL),
    "philly": (2.5, SMALL),
    "pai": (2.0, SMALL),
    "itp": (2.0, SMALL),
    "seren": (2.0, LARGE),
    "kalos": (2.0, LARGE),
}
# Columns: policy and who tells it remaining times.
RIVALS = {
    "fifo": ("fifo", "none"),
    "backfill": ("fifo:backfill=true", "none"),
    "tiresias": ("tiresias", "none"),
    "las": ("las", "none"),
    "lucid": ("lucid", "lucid"),
    "gittins": ("gittins", "none"),
    "qssf": ("qssf", "qssf"),
}
OURS = {
    "weft, none": ("weft", "none"),
    "weft, history": ("weft", "history"),
    "weft, alike": ("weft", "alike"),
}
TRUTH = {"srtf, truth": ("srtf", "oracle"), "weft, truth": ("weft", "oracle")}
COLUMNS = {**RIVALS, **OURS, **TRUTH}


def main() -> int:
    """Simulate what is missing and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain_jobs", description=__doc__)
    parser.add_argument("traces", nargs="*", metavar="TRACE", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7])
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--cluster", default="", help="instead of the usual one")
    parser.add_argument("--only", nargs="+", metavar="COLUMN", default=list(COLUMNS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget what was simulated before")
    parser.add_argument("--cached", action="store_true", help="simulate nothing")
    asked = parser.parse_args()
    if unknown := {*asked.traces} - {*WORKLOADS}:
        parser.error(f"no trace {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if unknown := {*asked.only} - {*COLUMNS}:
        parser.error(f"no column {', '.join(sorted(unknown))}; there are {', '.join(COLUMNS)}")
    there = {*names("policy"), *names("predictor"), "fifo:backfill=true"}
    columns = [c for c in asked.only if {*COLUMNS[c]} <= there]
    store = Store(fresh=asked.fresh)
    grid = {
        (trace, column): [
            Cell(trace, load, asked.jobs, seed, *COLUMNS[column], asked.cluster or cluster)
            for seed in asked.seeds
        ]
        for trace, (load, cluster) in WORKLOADS.items()
        if not asked.traces or trace in asked.traces
        for column in columns
    }
    if not asked.cached:
        missing = [cell for cells in grid.values() for cell in cells if store.get(cell) is None]
        for done, cell in enumerate(store.fill(missing, asked.processes), 1):
            jct = (store.get(cell) or {}).get("avg_jct_h", 0.0)
            name = f"{cell.trace} {cell.seed} {cell.policy} {cell.predictor}"
            print(f"{done} of {len(missing)}: {name}: {jct:.3f} h", flush=True)
    rows: dict[str, Row] = {}
    for (trace, column), cells in grid.items():
        results = [numbers for cell in cells if (numbers := store.get(cell)) is not None]
        if len(results) == len(cells):  # means are compared over the same seeds
            rows[trace] = {**rows.get(trace, {}), column: results}
    print_tables(rows, columns, list(RIVALS), list(OURS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
