"""Measured jobs that share a GPU: where the tables are, and what they hold.

`interference_alone.csv` (solo features) and `interference_groups.csv` (groups of two to four)
beside this file are our own, by `interference_measure.py` on one H200; pairs on the same kind of
GPU and Lucid's pairs on an RTX 3090 are read from the folder of research data.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.interference_fit import Group
from weft.perf.sharing.interference import Features

HERE = Path(__file__).parent
Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """Jobs alone and together on one kind of GPU; `scores` are Lucid's, where there are any."""

    solo: Mapping[str, Features]
    pairs: Mapping[str, Sequence[Group]]
    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    scores: Mapping[str, int] = field(default_factory=dict)


def h200(data: Path) -> Measured:
    """Our workloads on an H200, under time slicing and MPS."""
    pairs = {
        "timeslicing": [_pair(row) for row in rows(data / "h200" / "pairs-ts.csv")],
        "mps": [_pair(row) for row in rows(data / "h200" / "pairs-mps.csv")],
    }
    solo = {f"{row['model']}:{row['batch']}": _alone(row) for row in rows(ALONE)}
    return Measured(solo, pairs, {name: _groups(name) for name in pairs})


ALONE = HERE / "interference_alone.csv"
GROUPS = HERE / "interference_groups.csv"


def lucid(data: Path) -> Measured:
    """Lucid's workloads on an RTX 3090; the processes shared it without MPS."""
    single = rows(data / "lucid" / "single_data.csv")
    solo = {_lucid_name(row, ""): _lucid_alone(row) for row in single}
    pairs = [
        Group(
            (_lucid_name(row, "1"), _lucid_name(row, "2")),
            (float(row["speed1"]), float(row["speed2"])),
        )
        for row in rows(data / "lucid" / "colocate_info.csv")
    ]
    scores = {_lucid_name(row, ""): int(row["label"]) for row in single}
    return Measured(solo, {"timeslicing": pairs}, scores=scores)


def rows(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def model_of(name: str) -> str:
    """`bert-base` of `bert-base:32`; with and without mixed precision is one model."""
    return name.rpartition(":")[0].removesuffix("-amp")


def _pair(row: Row) -> Group:
    members = f"{row['model_a']}:{row['batch_a']}", f"{row['model_b']}:{row['batch_b']}"
    return Group(members, (float(row["norm_a"]), float(row["norm_b"])))


def _alone(row: Row) -> Features:
    step_ms, busy = float(row["step_ms"]), float(row["busy"])
    return Features(
        busy=busy,
        fill=float(row["fill"]),
        bandwidth=float(row["memory_util"]),
        kernel_us=1e3 * busy * step_ms / float(row["kernels"]),
        step_s=step_ms / 1e3,
        mem_gb=float(row["mem_gb"]),
    )


def _groups(discipline: str) -> list[Group]:
    by_group: dict[str, list[tuple[str, float]]] = {}
    for row in rows(GROUPS):
        if row["discipline"] == discipline:
            by_group.setdefault(row["group"], []).append((row["workload"], float(row["norm"])))
    return [
        Group(tuple(name for name, _ in members), tuple(rate for _, rate in members))
        for members in by_group.values()
    ]


def _lucid_name(row: Row, which: str) -> str:
    precision = "-amp" if row[f"amp{which}"] == "1" else ""
    return f"{row[f'model{which}']}{precision}:{row[f'batchsize{which}']}"


def _lucid_alone(row: Row) -> Features:
    return Features(
        busy=float(row["gpu_util"]) / 100,
        bandwidth=float(row["gmem_util"]) / 100,
        step_s=float(row["batchsize"]) / float(row["speed"]),
        mem_gb=float(row["gmem"]) / 1024,
    )
