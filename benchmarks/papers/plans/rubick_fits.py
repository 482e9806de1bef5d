"""How well Rubick's formulas explain what they were not fitted to: `python -m ...rubick_fits`.

Runs of each model are fitted as its authors do, then other runs are predicted: average error by
plan, beside the table that the authors print.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from benchmarks.measure import data_folder
from benchmarks.papers.plans.rubick_data import read_models
from weft.core.model.execution import Execution
from weft.perf.plans.fit import START, PlanRun, fit_plans
from weft.perf.plans.law import PlanLaw

HALVES = (1.0, 2.0, 4.0, 8.0)
DP, GC, ZERO = Execution(), Execution(checkpointing=True), Execution(zero=2)
OFFLOAD = Execution(offload=True)
COUNTS = (1, 2, 4, 8)
# Bandwidths of the authors' validation where they are not those of their scheduler.
LINKS = {"vit": (64.0, 34.057018390132875), "t5": (64.0, 88.56587629910638)}
# By model: forward milliseconds, by what GPUs divide them, cost of a second forward pass.
FORWARD = {
    "vit": (40.0, HALVES, 2.0),
    "roberta": (480.0, (2.0, *HALVES[1:]), 2.0),
    "bert": (225.0, (1.0, 1.8, 3.24, 5.832), 1.8),
    "t5": (338.0, HALVES, 2.0),
}
# What was measured, in milliseconds on 1, 2, 4 and 8 GPUs; ZeRO counts as plain data parallelism.
MEASURED = {
    "vit": {
        "DP": (DP, (153.97, 88.0, 62.0, 49.0)),
        "GC": (GC, (195.0, 112.0, 73.0, 54.005)),
        "ZeRO": (DP, (144.93, 85.0, 65.97, 51.0)),
        "Offload": (OFFLOAD, (233.0, 139.0, 99.0, 83.99)),
    },
    "bert": {
        "DP": (DP, (654.5, 365.0, 225.65, 157.0)),
        "GC": (GC, (868.0, 481.0, 279.65, 180.0)),
        "ZeRO": (DP, (668.0, 382.0, 228.65, 155.0)),
        "Offload": (OFFLOAD, (1019.7, 580.0, 376.0, 271.64)),
    },
    "t5": {
        "ZeRO": (ZERO, (1132.8, 721.0, 536.0, 463.0)),
        "Offload": (OFFLOAD, (2411.0, 1431.0, 886.0, 653.0)),
    },
}
# Percent, averages, as the authors print them.
PRINTED = {
    "vit": {"DP": 3.631, "GC": 2.592, "ZeRO": 4.231, "Offload": 3.002},
    "bert": {"DP": 5.268, "GC": 4.9, "ZeRO": 3.701, "Offload": 6.372},
    "t5": {"ZeRO": 6.711, "Offload": 4.368},
}


def read_runs(folder: Path, model: str) -> tuple[PlanLaw, list[PlanRun]]:
    """The runs that a model is fitted to, and its law before."""
    runs, params = [], 0.0
    with (folder / "fit_profiles.csv").open() as file:
        for row in csv.DictReader(file):
            if row["model"] == model:
                params, kind = float(row["params_Mi"]), row["zero_type"]
                plan = Execution(int(row["gpus"]), zero=2 * (kind == "2"), offload=kind == "1")
                times = (float(row[f"{name}_ms"]) for name in ("forward", "iter", "Tcc", "Topt"))
                runs.append(PlanRun(plan, *times, threads=float(row["cpu_threads"])))
    facts = read_models(folder)[model]
    links = LINKS.get(model, (facts["env"]["B_pcie"], facts["env"]["B_nvlink"]))
    return PlanLaw(params, facts["global_batch"], 1.0, *links, START), runs


def fit_errors(folder: Path, model: str) -> dict[str, float]:
    """Average errors in percent, by plan."""
    law = fit_plans(*read_runs(folder, model))
    whole, divide, recompute = FORWARD[model]
    errors = {}
    for name, (plan, measured) in MEASURED[model].items():
        predicted = [
            law.replicated_ms(
                plan.on(count) or plan,
                whole / by,
                threads=4.0 if plan.offload else 1.0,
                recompute=recompute,
            )
            for count, by in zip(COUNTS, divide, strict=True)
        ]
        seen = np.array(measured)
        errors[name] = float(100.0 * np.mean(np.abs(np.array(predicted) - seen) / seen))
    return errors


def main() -> int:
    """Print ours beside theirs; fail if any is a tenth of a point away."""
    data = data_folder()
    if data is None:
        print("no data of Rubick here")
        return 0
    worst = 0.0
    print(f"{'model':<10}{'plan':<10}{'ours %':>9}{'printed %':>11}")
    for model, printed in PRINTED.items():
        found = fit_errors(data / "rubick", model)
        for plan, theirs in printed.items():
            print(f"{model:<10}{plan:<10}{found[plan]:>9.3f}{theirs:>11.3f}")
            worst = max(worst, abs(found[plan] - theirs))
    print(f"largest difference {worst:.3f} percentage points")
    return 0 if worst <= 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
