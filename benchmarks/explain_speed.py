"""What `weft explain` costs on a service with many waiting jobs.

    python -m benchmarks.explain_speed [--waiting 1000] [--asked 40]

Starts a service as people do, on 96 simulated GPUs of two kinds under the default policy, with
jobs of every sort: some elastic, some gangs, half with an estimate. Then asks about jobs all over
the queue, one after the other. CPU time is that of the service and all its processes, so that a
busy machine does not spoil the figures; one job's listing is the baseline of the same run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.service_load import SERVE, Asker, cpu_s

ENGINE = "simulated:cluster=8x8:a100+4x8:h200,speed=1"
PROMISED_S = 1.0
BATCH = 250


def job(number: int) -> dict[str, Any]:
    """One of every sort."""
    body: dict[str, Any] = {"name": f"job{number}", "gpus": (1, 2, 4, 8, 16)[number % 5]}
    if number % 2:
        body["hints"] = {"duration_s": 1800 + 97 * (number % 50)}
    if number % 4 == 0:
        body["gpus"] = {"min": 1, "max": 16}
    if number % 7 == 0:
        body["kinds"] = ["a100"]
    return body


def family_cpu_s(pid: int) -> float:
    """CPU seconds of a process and those it started."""
    with_it = [pid]
    for member in with_it:
        for thread in Path(f"/proc/{member}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended just now
                with_it += [int(child) for child in (thread / "children").read_text().split()]
    return sum(cpu_s(child) for child in with_it)


def ask_all(asker: Asker, pid: int, jobs: list[str], path: str) -> list[float]:
    """CPU seconds for each."""
    took = []
    for job in jobs:
        before = family_cpu_s(pid)
        asker.ask("GET", path.format(job))
        took.append(family_cpu_s(pid) - before)
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--asked", type=int, default=40)
    parser.add_argument("--policy", default="weft")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SERVE, ENGINE, folder, asked.policy]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            asker = Asker(server.stdout.readline().strip())
            batch = {"jobs": [job(number) for number in range(BATCH)]}
            sent: list[str] = []
            while asker.ask("GET", "/cluster")["waiting"] < asked.waiting:
                sent += asker.ask("POST", "/jobs/batch", batch)["jobs"]
            waiting = sent[-asked.waiting :]  # few of them have started
            jobs = waiting[:: max(len(waiting) // asked.asked, 1)]
            asker.ask("GET", f"/jobs/{jobs[0]}/explain")  # the process that answers is started
            plain = ask_all(asker, server.pid, jobs, "/jobs/{}")
            times = ask_all(asker, server.pid, jobs, "/jobs/{}/explain")
        finally:
            server.terminate()
            server.wait(60)
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(f"{len(waiting)} waiting, {len(jobs)} asked about, policy {asked.policy}")
    print(f"  a job       {statistics.median(plain):6.3f} s CPU p50")
    print(f"  explain     {cuts[49]:6.3f} s CPU p50, {cuts[98]:.3f} s p99")
    print(f"  of {PROMISED_S:g} s      {cuts[98] / PROMISED_S:6.2f} at p99")


if __name__ == "__main__":
    main()
