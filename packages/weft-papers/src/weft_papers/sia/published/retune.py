"""TunedJobs for another cluster: GPUs and batch sizes chosen offline, as the Sia paper does it.

For rigid schedulers on the homogeneous cluster the authors tuned their jobs anew "to fully exploit"
its 64 GPUs; those files are not public, so this repeats the procedure. For every model, the best
batch size at each number of GPUs is the one that trains fastest; numbers of GPUs whose speed-up
over one GPU is 50 to 80 % of ideal, in less than 12 hours, are kept, and each job draws one.
"""

from __future__ import annotations

import csv
from math import ceil
from pathlib import Path

import numpy as np

from weft.perf.goodput.tables import KindTable, ModelTable, read_tables

EFFICIENT = (0.5, 0.8)
LONGEST_S = 12 * 3600.0


def retuned(data: Path, workload: str, kind: str, gpus: int, into: Path) -> Path:
    """A copy of a workload file whose jobs ask for what suits `gpus` GPUs of one kind."""
    tables = read_tables(data / "profiles", kinds=(kind,))
    rng = np.random.default_rng(0)
    choices: dict[str, list[tuple[int, int]]] = {}
    with (data / "workloads" / f"{workload}.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        model = row["application"]
        if model not in choices:
            choices[model] = tunings(data / "profiles" / model, tables[model], kind, gpus)
        drawn = choices[model][int(rng.integers(len(choices[model])))]
        row["num_replicas"], row["batch_size"] = str(drawn[0]), str(drawn[1])
    path = into / f"{workload.replace('/', '-')}.csv"
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def tunings(folder: Path, table: ModelTable, kind: str, gpus: int) -> list[tuple[int, int]]:
    """(GPUs, batch size) that are efficient and short enough; one GPU where none is."""
    speeds = table.kinds[kind]
    assert isinstance(speeds, KindTable)
    steps = {int(p.stem.split("-")[1]): _iterations(p, table) for p in folder.glob("validation-*")}
    alone_s, alone_batch = _fastest(speeds, steps, 1)
    pairs = []
    for count in range(2, gpus, 2):
        if count * speeds.min_local > table.max_batch:
            break
        took, batch = _fastest(speeds, steps, count)
        good = EFFICIENT[0] < alone_s / took / count < EFFICIENT[1]
        if good and took < LONGEST_S:
            pairs.append((count, batch))
    return pairs or [(1, alone_batch)]


def _fastest(speeds: KindTable, steps: dict[int, float], gpus: int) -> tuple[float, int]:
    """Seconds of the whole training at the best batch size, on whole nodes first."""
    size = speeds.node_gpus
    placement = (*(size,) * (gpus // size), *((gpus % size,) if gpus % size else ()))
    trials = []
    for batch, iterations in steps.items():
        each = ceil(batch / gpus - 1e-8)
        if each < speeds.min_local:
            continue
        accumulate = ceil(each / speeds.max_local - 1e-8)
        step, sync = speeds.times(placement, ceil(each / accumulate - 1e-8))
        trials.append((iterations * (step + (accumulate - 1) * (step - sync)), batch))
    return min(trials)


def _iterations(path: Path, table: ModelTable) -> float:
    """Iterations of a whole training at the batch size of a file."""
    with path.open(newline="") as lines:
        return float(list(csv.DictReader(lines))[table.epochs - 1]["iteration"])
