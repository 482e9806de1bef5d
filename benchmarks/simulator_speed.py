"""Whole traces in CPU seconds: Helios Venus (125,303 GPU jobs), Muri's trace1, Sia's philly 1.

Of `scale-1m`, where nobody waits on 100,000 GPUs, the first 10,000 jobs; the whole million with
`python -m benchmarks.simulator_speed [POLICY ...]`, some 250 CPU s for each policy. Beside trace1
a naive simulator that only counts GPUs: no nodes, no ledger, no checks, no events. It tells what
all of those cost on a small cluster.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

from tests.policies.test_counting import naive

import weft
from benchmarks.data import data_folder, missing
from benchmarks.measure import command, cpu_s
from weft.app.simulate.run import run_one
from weft.app.simulate.setup import Setup
from weft.traces.read import load

SLICE, WHOLE = 10_000, 1_000_000
SCALED = ("fifo", "srtf", "las", "tiresias")


def simulate_scaled(policy: str, jobs: int) -> tuple[float, float]:
    """CPU seconds and GB for the first jobs of `scale-1m`."""
    code = f"import weft; weft.simulate('scale-1m', {policy!r}, '12500x8:v100', jobs={jobs})"
    return command([sys.executable, "-c", code])


def run() -> dict[str, float]:
    if absent := missing("traces/normalized/helios_venus.csv.gz", "muri/traces", "sia/profiles"):
        print(f"skipped: {absent}")
        return {}
    data = data_folder()
    speeds: dict[str, float] = {}
    for policy in SCALED:
        seconds, _ = simulate_scaled(policy, SLICE)
        speeds[f"scale-1m {policy}, CPU ms a job"] = 1e3 * seconds / SLICE
    venus = data / "traces" / "normalized" / "helios_venus.csv.gz"
    for policy in ("srtf", "tiresias"):
        code = f"import weft; weft.simulate({str(venus)!r}, {policy!r}, '133x8:v100')"
        seconds, gigabytes = command([sys.executable, "-c", code])
        speeds[f"venus {policy}, CPU s"] = seconds
        speeds[f"venus {policy}, GB"] = gigabytes
    trace = load(data / "muri" / "traces" / "trace1.csv")
    ours = cpu_s(lambda: weft.simulate(trace, "srsf", "16x8:v100", restart_cost=0.0))
    theirs = cpu_s(lambda: naive(trace, "srsf", 128), runs=1)
    speeds["trace1 srsf, CPU s"] = ours
    speeds["trace1 srsf, ours over naive"] = ours / theirs
    sia = Setup(
        str(data / "sia" / "workloads" / "philly" / "workload-1.csv"),
        "sia",
        cluster="sia-hetero",
        profiles=str(data / "sia" / "profiles"),
        free_moves=True,
    )
    muri = Setup(str(data / "muri" / "traces" / "trace1.csv"), "muri", "8x8:v100", perf="muri")
    for name, setup in {
        "philly 1 sia, CPU s": replace(sia, policy="sia"),
        "philly 1 weft, CPU s": replace(sia, policy="weft"),
        "trace1 muri, CPU s": muri,
    }.items():
        speeds[name] = cpu_s(partial(run_one, setup), runs=1)
    return speeds


if __name__ == "__main__":
    for name in sys.argv[1:] or SCALED:
        cpu, memory = simulate_scaled(name, WHOLE)
        print(f"scale-1m {name}: {cpu:.0f} CPU s, {memory:.2f} GB", flush=True)
