"""Mean ratios over files with bootstrap intervals, and what was aimed at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.weft.runs import Numbers

SHOWN = {
    "avg_jct_h": "avg JCT",
    "p50_jct_h": "p50",
    "p99_jct_h": "p99",
    "makespan_h": "makespan",
    "worst_ftf": "worst FTF",
    "restarts_per_job": "restarts",
}
DRAWS = 2000
HEAD = f"{'':<46} {'files':>5} {'avg JCT (90 % interval)':>24}" + "".join(
    f" {name:>9}" for name in (*list(SHOWN.values())[1:], "FTF most")
)


def line(name: str, pairs: Sequence[tuple[Numbers, Numbers]]) -> str:
    """One line: mean ratios, ours over theirs, and the largest ratio of worst FTFs of any file."""
    ratios = {m: np.array([ratio(ours[m], theirs[m]) for ours, theirs in pairs]) for m in SHOWN}
    low, high = interval(ratios["avg_jct_h"])
    average = f"{ratios['avg_jct_h'].mean():.3f} ({low:.3f}-{high:.3f})"
    cells = [f"{ratios[m].mean():>9.3f}" for m in list(SHOWN)[1:]]
    cells.append(f"{ratios['worst_ftf'].max():>9.3f}")
    return f"{name:<46} {len(pairs):>5} {average:>24} " + " ".join(cells)


def ratio(ours: float, theirs: float) -> float:
    """1 where both are nothing."""
    return ours / theirs if theirs else 1.0 if ours == theirs else float("inf")


def interval(values: np.ndarray) -> tuple[float, float]:
    """Where the mean of nine in ten samples of these files lies, drawn with replacement."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(means, (0.05, 0.95))
    return float(low), float(high)
