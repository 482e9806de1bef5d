"""Ratios over workloads: one line a workload, one column a policy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from benchmarks.plain_jobs.cells import Numbers

Row = Mapping[str, Sequence[Numbers]]  # results of all seeds by column
TO_BEST = {
    "avg_jct_h": "average JCT",
    "avg_queue_h": "average wait",
    "slowdown_10s": "bounded slowdown, 10 s",
    "slowdown_10min": "bounded slowdown, 10 min",
}
HEADS = {
    **{name: f"{what}, to the best of others that has no oracle" for name, what in TO_BEST.items()},
    "worst_ftf": "worst finish-time fairness, to gittins",
    "cpu_s": "CPU time of the simulation, to gittins",
}
BASE = "gittins"


def print_tables(
    rows: Mapping[str, Row], columns: Sequence[str], rivals: Sequence[str], ours: Sequence[str]
) -> None:
    """A table a metric; columns are in the same order in each."""
    for metric, head in HEADS.items():
        print(f"\n{head}\n\n| | {' | '.join(columns)} |")
        print(f"|---|{'--:|' * len(columns)}")
        table = {name: _ratios(row, metric, columns, rivals) for name, row in rows.items()}
        for name, ratios in table.items():
            print(_line(name, ratios, columns))
        print(_line("mean", _over(table.values(), columns, statistics.geometric_mean), columns))
        print(_line("most", _over(table.values(), columns, max), columns))
    _print_summary(rows, ours)


def _mean(row: Row, column: str, metric: str) -> float:
    return statistics.mean(numbers[metric] for numbers in row[column])


def _ratios(
    row: Row, metric: str, columns: Sequence[str], rivals: Sequence[str]
) -> dict[str, float]:
    """Of means over seeds; a column that was not simulated is left out."""
    there = [column for column in columns if row.get(column)]
    others = [column for column in rivals if column in there] if metric in TO_BEST else [BASE]
    base = min((_mean(row, column, metric) for column in others if column in there), default=0.0)
    if not base:
        return {}
    return {column: _mean(row, column, metric) / base for column in there}


def _line(name: str, ratios: Mapping[str, float], columns: Sequence[str]) -> str:
    cells = [f"{ratios[column]:.3f}" if column in ratios else "" for column in columns]
    return f"| {name} | {' | '.join(cells)} |"


def _over(
    table: object, columns: Sequence[str], how: Callable[[list[float]], float]
) -> dict[str, float]:
    lines: list[Mapping[str, float]] = list(table)  # type: ignore[call-overload]
    by_column = {c: [line[c] for line in lines if c in line] for c in columns}
    return {column: how(values) for column, values in by_column.items() if values}


def _print_summary(rows: Mapping[str, Row], ours: Sequence[str]) -> None:
    """Ours to the truth, seed by seed."""
    for column in ours:
        ratios = [
            a["avg_jct_h"] / b["avg_jct_h"]
            for row in rows.values()
            for a, b in zip(row.get(column, ()), row.get("srtf, truth", ()), strict=False)
        ]
        if ratios:
            low, high = min(ratios), max(ratios)
            mean = statistics.geometric_mean(ratios)
            print(f"\n{column}: {mean:.3f} of srtf with the truth ({low:.3f} to {high:.3f})")
