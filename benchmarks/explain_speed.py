"""What `weft explain` costs on a service with many waiting jobs.

    python -m benchmarks.explain_speed [--waiting 1000] [--asked 40]

Starts a service as people do, on 96 simulated GPUs of two kinds under the default policy, with
jobs of every sort: some elastic, some gangs, half with an estimate. Then asks about jobs all over
the queue, one after the other. CPU time is that of the service and of the process that answers, so
that a busy machine does not spoil the figures; decisions that another process of the service makes
meanwhile are told apart. One job's listing is the baseline of the same run.
"""

from __future__ import annotations

import argparse
import os
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
DECIDES = "weft.runtime.deciding.decide_worker"


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


def processes(pid: int) -> list[int]:
    """A process and those it started."""
    family = [pid]
    for member in family:
        for thread in Path(f"/proc/{member}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended just now
                family += [int(child) for child in (thread / "children").read_text().split()]
    return family


def decides(pid: int) -> bool:
    """Whether a process of the service makes its decisions."""
    return DECIDES.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


def ask_all(asker: Asker, pids: list[int], jobs: list[str], path: str) -> list[float]:
    """CPU seconds of these processes for each."""
    took = []
    for job in jobs:
        before = sum(map(cpu_s, pids))
        asker.ask("GET", path.format(job))
        took.append(sum(map(cpu_s, pids)) - before)
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
            jobs = waiting[:: len(waiting) // asked.asked + 1]  # of every sort
            asker.ask("GET", f"/jobs/{jobs[0]}/explain")  # the process that answers is started
            family = processes(server.pid)
            others = [pid for pid in family if decides(pid)]
            pids = [pid for pid in family if pid not in others]
            before = sum(map(cpu_s, others))
            plain = ask_all(asker, pids, jobs, "/jobs/{}")
            times = ask_all(asker, pids, jobs, "/jobs/{}/explain")
            beside = sum(map(cpu_s, others)) - before
        finally:
            server.terminate()
            server.wait(60)
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(f"{len(waiting)} waiting, {len(jobs)} asked about, policy {asked.policy}")
    print(f"  a job       {statistics.median(plain):6.3f} s CPU p50")
    print(f"  explain     {cuts[49]:6.3f} s CPU p50, {cuts[98]:.3f} s p99")
    print(f"  of {PROMISED_S:g} s      {cuts[98] / PROMISED_S:6.2f} at p99")
    print(f"  meanwhile   {beside:6.3f} s CPU of the processes that do not answer, for decisions")
    print(f"  load        {os.getloadavg()[0]:6.1f}")


if __name__ == "__main__":
    main()
