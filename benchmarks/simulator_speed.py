"""Whole traces in CPU seconds: Helios Venus (125,303 GPU jobs) and Muri's trace1.

Beside it a naive simulator that only counts GPUs: no nodes, no ledger, no checks, no events. It
tells what all of those cost on a small cluster.
"""

from __future__ import annotations

import sys

from tests.papers.test_counting import naive

import weft
from benchmarks.measure import command, cpu_s, data_folder
from weft.traces.read import load


def run() -> dict[str, float]:
    data = data_folder()
    if data is None:
        print("skipped: the public research data is not here; set WEFT_DATA to its folder")
        return {}
    found: dict[str, float] = {}
    venus = data / "traces" / "normalized" / "helios_venus.csv.gz"
    for policy in ("srtf", "tiresias"):
        code = f"import weft; weft.simulate({str(venus)!r}, {policy!r}, '133x8:v100')"
        seconds, gigabytes = command([sys.executable, "-c", code])
        found[f"venus {policy}, CPU s"] = seconds
        found[f"venus {policy}, GB"] = gigabytes
    trace = load(data / "muri" / "traces" / "trace1.csv")
    ours = cpu_s(lambda: weft.simulate(trace, "srsf", "16x8:v100", restart_cost=0.0))
    theirs = cpu_s(lambda: naive(trace, "srsf", 128), runs=1)
    found["trace1 srsf, CPU s"] = ours
    found["trace1 srsf, ours over naive"] = ours / theirs
    return found
