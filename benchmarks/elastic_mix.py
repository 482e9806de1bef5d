"""The same twelve elastic trainings on a real service with four CPU slots, policy by policy.

    python -m benchmarks.elastic_mix [POLICY ...] [--scale S]

Small perceptrons of `examples/train/regression.py`: six short, four middling and two long ones,
that take 1 to 4 slots each, one every two seconds. Who decides in rounds does so every 5 s here.
`--scale` multiplies their lengths. Completion times are of this machine: compare them in one run.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.gpu_mix.__main__ import call, free_port, wait_ready
from benchmarks.measure import ROOT

POLICIES = ("weft", "sia:interval=5", "gandiva", "fifo")
SHORT, MIDDLE, LONG = ("short", 40), ("middle", 120), ("long", 300)  # model and epochs
JOBS = (LONG, SHORT, MIDDLE, SHORT, SHORT, MIDDLE, LONG, SHORT, MIDDLE, SHORT, MIDDLE, SHORT)
APART_S, LIMIT_S = 2.0, 900.0
OVER = ("succeeded", "failed", "cancelled")


def main() -> int:
    """Run the policies that were named and compare them with the last."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic_mix", description=__doc__)
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY")
    parser.add_argument("--scale", type=float, default=1.0)
    asked = parser.parse_args()
    table = Table("policy", "average completion, s", "makespan, s", "restarts", "average over last")
    found = {policy: run(policy, asked.scale) for policy in asked.policies}
    last = found[asked.policies[-1]]["average_s"]
    for policy, one in found.items():
        numbers = (one["average_s"], one["makespan_s"])
        cells = [f"{number:.1f}" for number in numbers]
        table.add_row(policy, *cells, f"{one['restarts']:.0f}", f"{one['average_s'] / last:.2f}")
    Console().print(table)
    return 0


def run(policy: str, scale: float) -> dict[str, float]:
    """One service, twelve jobs, and what became of them."""
    port = free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "service.log"
        command = [sys.executable, "-m", "weft", "serve", "--slots", "4", "--policy", policy]
        command += ["--state", f"{folder}/state", "--port", str(port)]
        with log.open("w") as out:
            service = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_ready(port, service, log)
            return watch(policy, port, scale)
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(timeout=60)


def watch(policy: str, port: int, scale: float) -> dict[str, float]:
    """Submit one after the other, and wait for the end of all."""
    began, ids = time.time(), []
    for model, epochs in JOBS:
        ids.append(submit(port, model, max(int(scale * epochs), 1)))
        time.sleep(APART_S)
    while True:
        jobs = [call(port, f"/jobs/{name}") for name in ids]
        if all(job["state"] in OVER for job in jobs):
            break
        if time.time() - began > LIMIT_S:
            raise TimeoutError(f"{policy}: some jobs did not end in {LIMIT_S:.0f} s")
        time.sleep(0.5)
    if bad := [job["id"] for job in jobs if job["state"] != "succeeded"]:
        raise RuntimeError(f"{policy}: {', '.join(bad)} did not succeed")
    return {
        "average_s": statistics.mean(job["ended"] - job["submitted"] for job in jobs),
        "makespan_s": max(j["ended"] for j in jobs) - min(j["submitted"] for j in jobs),
        "restarts": sum(job["attempt"] - 1 for job in jobs),
    }


def submit(port: int, model: str, epochs: int) -> str:
    body: dict[str, Any] = {
        "name": model,
        "command": [sys.executable, "regression.py"],
        "workdir": str(ROOT / "examples" / "train"),
        "gpus": {"min": 1, "max": 4},
        "batch": {"init": 64, "max": 512},
        "model": f"regression-{model}",
        "env": {"EPOCHS": str(epochs)},
    }
    return str(call(port, "/jobs", body)["id"])


if __name__ == "__main__":
    sys.exit(main())
