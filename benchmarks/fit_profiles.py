"""Fit the parameters that ship with the package from measured profiles, and state the error.

    python -m benchmarks.fit_profiles PROFILES_FOLDER

writes `weft/perf/data/models.json`: per model and GPU kind the seven step-time parameters and the
batch limits, per model the gradient noise scale over the course of training.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from weft.base.step_fit import FitRow
from weft.perf.goodput.fit import fit
from weft.perf.goodput.tables import KindTable, ModelTable, read_tables

OUT = Path("packages/weft/src/weft/perf/data/models.json")
KNOTS = 12
PIPELINE = "pmp"


def rows_of(kind: KindTable) -> list[FitRow]:
    return [
        FitRow(nodes, gpus, int(local), step - sync, step)
        for (nodes, gpus), (sizes, steps, syncs) in kind.shapes.items()
        for local, step, sync in zip(sizes, steps, syncs, strict=True)
    ]


def errors(rows: list[FitRow]) -> tuple[float, float]:
    """Median and 90th percentile of the relative error of step times."""
    times = fit(rows)
    off = [abs(float(times.step(r.nodes, r.replicas, r.local)) / r.step_s - 1.0) for r in rows]
    return float(np.median(off)), float(np.quantile(off, 0.9))


def noise_scale(table: ModelTable) -> list[float]:
    """Batch size at which efficiency has halved, at evenly spaced points of training."""
    phi = [
        float(np.median([table.init_batch * var / max(sqr, 1e-9) for sqr, var in epoch]))
        for epoch in table.stats
    ]
    at = np.linspace(0, len(phi) - 1, min(KNOTS, len(phi)))
    smooth = [np.median(phi[max(int(a) - 2, 0) : int(a) + 3]) for a in at]
    return [float(f"{value:.4g}") for value in smooth]


def main() -> None:
    profiles: dict[str, object] = {}
    for name, table in read_tables(Path(sys.argv[1])).items():
        if PIPELINE in name:
            continue  # its step times are of one pipeline stage
        kinds = {}
        for kind, measured in table.kinds.items():
            rows = rows_of(measured)
            median, high = errors(rows)
            print(f"{name:<12} {kind:<5} {len(rows):>5} rows, ", end="")
            print(f"step error median {median:.1%}, p90 {high:.1%}")
            kinds[kind] = {
                "step_time": [float(f"{p:.5g}") for p in fit(rows)],
                "min_local": measured.min_local,
                "max_local": measured.max_local,
                "bootstrap": measured.bootstrap,
                "node_gpus": measured.node_gpus,
                "error_median": round(median, 4),
                "error_p90": round(high, 4),
            }
        profiles[name] = {
            "init_batch": table.init_batch,
            "max_batch": table.max_batch,
            "epochs": table.epochs,
            "total": float(f"{table.total:.6g}"),
            "restart_s": table.restart_s,
            "assumed_restart_s": table.assumed_restart_s,
            "slowdown": table.slowdown,
            "noise_scale": noise_scale(table),
            "kinds": kinds,
        }
    OUT.write_text(json.dumps(profiles, indent=1) + "\n")
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main()
