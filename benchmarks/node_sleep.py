"""Philly's nodes under CES, without looking ahead: `python -m benchmarks.node_sleep`.

Nodes in use in 10-minute bins (their maxima), 420 nodes, published parameters; 1 to 14 December
2017, and the fortnight before; the forecast's own parameter was chosen on both. The forecast is
the mean of the same time over the last 14 days, moved to begin at the present value, or that value
(persistence); the truth bounds what any forecast could do.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from benchmarks.data import need
from weft.core.state.cells import Floats
from weft.formulas.node_sleeper import BINS_A_DAY, Forecast, SleepRule, daily_profile, sleep_nodes

SERIES = "traces/philly/philly_active_nodes_1min.csv.gz"
STARTS, DAYS = ("2017-12-01", "2017-11-17"), 14


def main() -> int:
    """Print nodes asleep, wake-ups, nodes short and utilisation of each forecast."""
    series = need(SERIES) / SERIES
    for start in STARTS:
        _show(start, *read_series(series, start))
    return 0


def _show(start: str, used: Floats, nodes: int, first: int) -> None:
    window = used[first : first + DAYS * BINS_A_DAY]
    print(f"\n{DAYS} days from {start}; in use of all: {window.mean() / nodes:.2%}\n")
    print("| forecast | nodes asleep | wake-ups a day | nodes short | in use of awake |")
    print("|---|--:|--:|--:|--:|")
    for name, forecast in _forecasts(used).items():
        slept = sleep_nodes(window, nodes, SleepRule(), _from(forecast, first))
        row = (
            f"{slept.asleep(nodes):.1f} | {slept.wake_ups / DAYS:.2f} | {slept.short:.0f}"
            f" | {slept.utilisation(window):.1%}"
        )
        print(f"| {name} | {row} |")


def read_series(path: Path, start: str) -> tuple[Floats, int, int]:
    """Maxima of 10-minute bins, the number of nodes, and the bin at which the two weeks begin."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    bins: dict[str, float] = {}
    for row in rows:
        bins[row["time"][:15]] = max(bins.get(row["time"][:15], 0.0), float(row["active"]))
    first = next(i for i, time in enumerate(bins) if time.startswith(start))
    return np.array([*bins.values()]), int(rows[0]["total"]), first


def _forecasts(used: Floats) -> dict[str, Forecast]:
    return {
        "the same time of the last 14 days": daily_profile(used),
        "persistence": lambda i, length: np.full(length, used[i]),
        "the truth": lambda i, length: used[i : i + length],
    }


def _from(forecast: Forecast, first: int) -> Forecast:
    return lambda i, length: forecast(first + i, length)


if __name__ == "__main__":
    raise SystemExit(main())
