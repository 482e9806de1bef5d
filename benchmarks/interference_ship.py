"""Fit the interference model that ships with the package, and state its errors.

    python -m benchmarks.interference_ship

writes `weft/perf/data/interference.json`: the laws of time slicing and MPS, the solo features of
the measured workloads, and errors. It is fitted to all pairs and groups; the errors it states for
held-out jobs are those of fits to part of the pairs, by the tests of `benchmarks.interference`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.data import need
from benchmarks.interference import HALVES, errors, fittings, halves, without
from benchmarks.interference_data import Measured, h200, model_of
from benchmarks.interference_fit import fit
from weft.perf.sharing.interference import dump

OUT = Path("packages/weft/src/weft/perf/data/interference.json")


def stated(measured: Measured, discipline: str, whole: list[float]) -> dict[str, float]:
    """Median relative errors of per-job rates: fitted, predicted halves, models and groups."""
    pairs, fitting = measured.pairs[discipline], fittings(measured, discipline)["ours"]
    half = []
    for seed in HALVES:
        kept, rest = halves(pairs, seed)
        guess = fitting(kept)
        half.append(np.median(errors((g, guess) for g in rest)))
    models = sorted({model_of(name) for group in pairs for name in group.members})
    left = [test for model in models for test in without(fitting, pairs, model)]
    guess = fitting(pairs)
    large = [g for g in measured.groups[discipline] if len(g.members) > 2]
    features = {
        "fitted": np.median(whole),
        "fitted_p90": np.quantile(whole, 0.9),
        "other_half_of_pairs": np.median(half),
        "model_left_out": np.median(errors(left)),
        "groups_of_3_and_4_from_pairs": np.median(errors((g, guess) for g in large)),
    }
    return {name: round(float(value), 4) for name, value in features.items()}


def main() -> None:
    measured = h200(need("h200"))
    everything = {name: [*pairs, *measured.groups[name]] for name, pairs in measured.pairs.items()}
    model = fit(measured.solo, everything)
    facts: dict[str, object] = {
        "gpu": "NVIDIA H200, 141 GB",
        "error": "relative, of each job's rate",
    }
    for name, groups in everything.items():
        whole = [
            abs(predicted / rate - 1.0)
            for g in groups
            for predicted, rate in zip(
                model.rates([measured.solo[m] for m in g.members], name), g.rates, strict=True
            )
        ]
        facts[name] = {"groups": len(groups)} | stated(measured, name, whole)
        print(name, facts[name])
    OUT.write_text(dump(replace(model, errors=facts)))
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main()
