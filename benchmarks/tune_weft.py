"""Parameters of `weft` by cross-validation on drawn workloads: `python -m benchmarks.tune_weft`.

    python -m benchmarks.tune_weft [--folds 3] [--seeds 6] [--jobs 40] [--vary NAME=A,B ...]

Elastic jobs are drawn as Pollux's were, never read from a published file: a workload a seed. Each
fold is held back in turn; the variant that does best on the others, by average completion time as
a ratio to `sia` on the same jobs, is measured on it. What is held back tells what tuning is worth,
and how far it differs from fold to fold what that number is worth.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor

import weft

WORKLOAD, CLUSTER, LOAD = "pollux", "6x4:t4+3x8:rtx+2x8:a100", 1.0
VARY = ("shape=0.5,0.6", "restart=2.2,1.5", "rise_s=3600,7200")
BASE, DEFAULT = "sia", "weft"
Ratios = dict[str, dict[int, float]]  # by policy and seed


def variants(vary: list[str]) -> list[str]:
    """Policies of all combinations; the default stands for itself."""
    named = [option.partition("=") for option in vary]
    values = [[f"{name}={value}" for value in choices.split(",")] for name, _, choices in named]
    return [DEFAULT, *(f"weft:{','.join(choice)}" for choice in itertools.product(*values))]


def simulate(policy: str, seed: int, jobs: int) -> float:
    """Hours to completion on average."""
    result = weft.compare(
        WORKLOAD, policy, CLUSTER, seeds=(seed,), jobs=jobs, load=LOAD, processes=1
    )
    return float(next(iter(result.outcomes.values()))[0].metrics["avg_jct_h"])


def measure(policies: list[str], seeds: int, jobs: int, processes: int) -> Ratios:
    """Ratios to `sia` of each policy and seed."""
    with ProcessPoolExecutor(processes) as pool:
        running = {
            (policy, seed): pool.submit(simulate, policy, seed, jobs)
            for seed in range(seeds)
            for policy in (BASE, *policies)
        }
        hours = {}
        for done, (cell, future) in enumerate(running.items(), 1):
            hours[cell] = future.result()
            print(f"{done} of {len(running)}: {cell[0]} {cell[1]}: {hours[cell]:.3f} h", flush=True)
    return {
        policy: {seed: hours[policy, seed] / hours[BASE, seed] for seed in range(seeds)}
        for policy in policies
    }


def hold_back(ratios: Ratios, folds: int) -> list[tuple[str, float, float]]:
    """Of each fold what the others chose, and on it that ratio and the default's."""
    seeds = sorted(ratios[DEFAULT])
    rows = []
    for fold in range(folds):
        held = [seed for seed in seeds if seed % folds == fold]
        others = [seed for seed in seeds if seed % folds != fold]
        best = min(ratios, key=lambda policy: (_mean(ratios[policy], others), policy))
        rows.append((best, _mean(ratios[best], held), _mean(ratios[DEFAULT], held)))
    return rows


def _mean(ratios: dict[int, float], seeds: list[int]) -> float:
    return statistics.geometric_mean(ratios[seed] for seed in seeds)


def main() -> int:
    """Print what each fold chose, and the spread."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune_weft", description=__doc__)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--vary", nargs="+", default=list(VARY), metavar="NAME=A,B")
    asked = parser.parse_args()
    if not 2 <= asked.folds <= asked.seeds:
        parser.error("at least two folds, and a seed for each")
    ratios = measure(variants(asked.vary), asked.seeds, asked.jobs, asked.processes)
    results = hold_back(ratios, asked.folds)
    print("\n| held back | the others chose | to sia | the default |\n|---|---|--:|--:|")
    for fold, (best, chosen, default) in enumerate(results):
        print(f"| fold {fold} | `{best}` | {chosen:.3f} | {default:.3f} |")
    for name, values in zip(
        ("chosen", "default"), list(zip(*results, strict=True))[1:], strict=True
    ):
        spread = statistics.stdev(values)
        print(f"\n{name}: {statistics.mean(values):.3f} of sia, from fold to fold +- {spread:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
