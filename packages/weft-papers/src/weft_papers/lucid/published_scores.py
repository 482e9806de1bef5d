"""Fit the thresholds of Lucid's sharing scores: `python -m weft_papers.lucid.published_scores`.

A classification tree of three levels (Gini impurity, midpoints between values) on the authors'
table of solo workloads: automatic mixed precision, GPU utilisation, memory-bus utilisation and
peak memory against the score. `weft_papers.lucid.queue` ships the few numbers it prints.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

import numpy as np
from benchmarks.data import need
from numpy.typing import NDArray

from weft.core.knowledge.profile import Profile
from weft.core.state.cells import Floats
from weft_papers.lucid.queue import score

Ints = NDArray[np.int64]

FEATURES = ("amp", "gpu_util", "gmem_util", "gmem")
DEPTH = 3
SMALLEST = 1  # workloads in a leaf at least


def main() -> int:
    """Print the tree, and how often it agrees with the table."""
    data = need("lucid/single_data.csv")
    with (data / "lucid" / "single_data.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    x = np.array([[float(row[name]) for name in FEATURES] for row in rows])
    y = np.array([int(row["label"]) for row in rows], dtype=np.int64)
    guess = np.zeros(len(y), dtype=np.int64)
    for line in grow(x, y, np.arange(len(y), dtype=np.int64), guess, 0):
        print(line)
    print(f"agrees on {(guess == y).sum()} of {len(y)} workloads ({(guess == y).mean():.3f})")
    shipped = [
        score(Profile(gpu_use=gpu / 100, bandwidth_use=bus / 100, mem_gb=mib / 1024))
        for _, gpu, bus, mib in x
    ]
    print(f"what is shipped agrees on {(np.array(shipped) == y).sum()}")
    return 0


def grow(x: Floats, y: Ints, rows: Ints, guess: Ints, level: int) -> Iterator[str]:
    """The subtree for some rows, as text; writes what it says of them into `guess`."""
    best = int(np.bincount(y[rows]).argmax())
    split = _split(x[rows], y[rows]) if level < DEPTH else None
    if split is None:
        guess[rows] = best
        yield f"{'  ' * level}score {best} ({len(rows)} workloads)"
        return
    feature, at = split
    low = x[rows, feature] <= at
    yield f"{'  ' * level}{FEATURES[feature]} <= {at:.6g}"
    yield from grow(x, y, rows[low], guess, level + 1)
    yield f"{'  ' * level}else"
    yield from grow(x, y, rows[~low], guess, level + 1)


def _split(x: Floats, y: Ints) -> tuple[int, float] | None:
    """The feature and threshold that leave the least impurity; None where nothing is gained."""
    least, best = _impurity(y) * len(y) - 1e-9, None
    for feature in range(x.shape[1]):
        values = np.unique(x[:, feature])
        for at in (values[1:] + values[:-1]) / 2.0:
            low = x[:, feature] <= at
            if min(low.sum(), (~low).sum()) < SMALLEST:
                continue
            left = _impurity(y[low]) * low.sum() + _impurity(y[~low]) * (~low).sum()
            if left < least:
                least, best = left, (feature, float(at))
    return best


def _impurity(y: Ints) -> float:
    parts = np.bincount(y) / len(y)
    return float(1.0 - (parts**2).sum())


if __name__ == "__main__":
    sys.exit(main())
