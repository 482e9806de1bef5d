"""Fit the thresholds of Lucid's sharing scores: `python -m weft_papers.lucid.published_scores`.

A classification tree of three levels (scikit-learn) on the authors' table of solo workloads:
automatic mixed precision, GPU utilisation, memory-bus utilisation and peak memory against the
score. `weft_papers.lucid.queue` ships the few numbers it prints.
"""

from __future__ import annotations

import csv
import sys

import numpy as np
from benchmarks.data import need
from sklearn.tree import DecisionTreeClassifier, export_text

from weft.core.knowledge.profile import Profile
from weft_papers.lucid.queue import score

FEATURES = ["amp", "gpu_util", "gmem_util", "gmem"]


def main() -> int:
    """Print the tree, and how often it agrees with the table."""
    data = need("lucid/single_data.csv")
    with (data / "lucid" / "single_data.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    x = np.array([[float(row[name]) for name in FEATURES] for row in rows])
    y = np.array([int(row["label"]) for row in rows])
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(x, y)
    agrees = tree.predict(x) == y
    print(export_text(tree, feature_names=FEATURES, decimals=4, show_weights=True))
    print(f"agrees on {agrees.sum()} of {len(y)} workloads ({agrees.mean():.3f})")
    shipped = [
        score(Profile(gpu_use=gpu / 100, bandwidth_use=bus / 100, mem_gb=mib / 1024))
        for _, gpu, bus, mib in x
    ]
    print(f"what is shipped agrees on {(np.array(shipped) == y).sum()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
