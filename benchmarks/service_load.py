"""Load on the service: 5,000 queued and 500 running jobs on the simulated engine.

    python -m benchmarks.service_load

Starts a service as people do, with its log on disk, fills it through the API, then submits at a
fixed rate from several connections while listing jobs. CPU time is the server's own, so a busy
machine does not spoil the figures; each is printed beside what was promised. With --ended N the
service has a past of N jobs instead: see `benchmarks/service_history.py`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import service_history

RUNNING, NODES = 504, 63
RATE, LIST_CPU_S = 200.0, 0.1
SERVE = """
import sys
from pathlib import Path
from weft.app.serve.live import Settings
from weft.service.main import serve
settings = Settings(engine=sys.argv[1], state=Path(sys.argv[2]), port=0, policy=sys.argv[3])
serve(settings, ready=lambda address: print(address, flush=True))
"""


class Asker:
    """One connection that is kept."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=120)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a success; anything else is raised."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        self._connection.request(method, f"/api/v1{path}", data, headers)
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {read[:300]!r}")
        return json.loads(read)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def on_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def job(number: int) -> dict[str, Any]:
    length = 3600 + 97 * (number % 50)
    tenant = f"t{number % 7}"
    return {"name": f"job{number}", "gpus": 1, "hints": {"duration_s": length}, "tenant": tenant}


def fill(address: str, queued: int, connections: int) -> float:
    """Submit as fast as it goes; jobs a second."""
    total = RUNNING + queued

    def submit(part: int) -> None:
        asker = Asker(address)
        for number in range(part, total, connections):
            asker.ask("POST", "/jobs", job(number))

    began = time.monotonic()
    on_threads(connections, submit)
    return total / (time.monotonic() - began)


def steady(
    address: str, pid: int, rate: float, seconds: float, connections: int
) -> dict[str, float]:
    """Submit at `rate` and cancel every fourth; latencies and the server's CPU time."""
    count = int(rate * seconds)
    took: list[float] = []
    late: list[float] = []
    began, cpu = time.monotonic(), cpu_s(pid)

    def submit(part: int) -> None:
        asker = Asker(address)
        for number in range(part, count, connections):
            due = began + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            at = time.monotonic()
            made = asker.ask("POST", "/jobs", job(100_000 + number))
            took.append(time.monotonic() - at)
            late.append(at - due)
            if number % 4 == 0:
                asker.ask("DELETE", f"/jobs/{made['id']}")

    on_threads(connections, submit)
    wall = time.monotonic() - began
    cuts = statistics.quantiles(took, n=100)
    return {
        "rate": count / wall,
        "cpu_of_a_core": (cpu_s(pid) - cpu) / wall,
        "submit_p50_ms": 1e3 * cuts[49],
        "submit_p99_ms": 1e3 * cuts[98],
        "late_max_ms": 1e3 * max(late),
    }


def listing(address: str, pid: int, path: str, times: int = 20) -> float:
    """CPU seconds of the server for one such request."""
    asker = Asker(address)
    cpu = cpu_s(pid)
    for _ in range(times):
        asker.ask("GET", path)
    return (cpu_s(pid) - cpu) / times


def measure(policy: str, asked: argparse.Namespace) -> None:
    engine = f"simulated:cluster={NODES}x8:a100,speed=1"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SERVE, engine, folder, policy]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            report(address, server.pid, policy, asked)
        finally:
            server.terminate()
            server.wait(60)


def report(address: str, pid: int, policy: str, asked: argparse.Namespace) -> None:
    cpu = cpu_s(pid)
    rate = fill(address, asked.queued, asked.connections)
    each = (cpu_s(pid) - cpu) / (RUNNING + asked.queued)
    asker = Asker(address)
    before = asker.ask("GET", "/cluster")
    print(f"policy {policy}: {before['running']} running, {before['waiting']} waiting")
    print(f"  filled at            {rate:8.0f} jobs/s, {1e3 * each:.2f} ms CPU a job")
    measured = steady(address, pid, asked.rate, asked.seconds, asked.connections)
    after = asker.ask("GET", "/cluster")
    kept = measured["rate"] / RATE
    print(f"  submits sustained    {measured['rate']:8.1f} jobs/s  ({kept:.2f} of {RATE:.0f})")
    print(f"  server CPU           {measured['cpu_of_a_core']:8.2f} of one core meanwhile")
    print(f"  at {RATE:.0f} jobs/s        {measured['cpu_of_a_core'] / kept:8.2f} of one core")
    print(
        f"  submit to on disk    {measured['submit_p50_ms']:8.1f} ms median, "
        f"{measured['submit_p99_ms']:.1f} ms p99, {measured['late_max_ms']:.0f} ms most behind"
    )
    decisions = after["decisions"] - before["decisions"]
    print(f"  decisions meanwhile  {decisions:8d} ({decisions / asked.seconds:.0f}/s)")
    for name, path in (
        ("list, a page of 100 ", "/jobs?limit=100"),
        ("list, 1,000 at once ", "/jobs?limit=1000"),
        ("list of the running ", "/jobs?state=running&limit=1000"),
        ("cluster summary     ", "/cluster"),
    ):
        cpu = listing(address, pid, path)
        print(f"  {name} {1e3 * cpu:8.1f} ms CPU  ({cpu / LIST_CPU_S:.2f} of 100 ms)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append")
    parser.add_argument("--queued", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--ended", type=int, default=0, help="with so many jobs in the past")
    asked = parser.parse_args()
    if asked.ended:
        service_history.report(asked.ended, (asked.policy or ["fifo"])[0], asked.seconds)
        return
    for policy in asked.policy or ["fifo", "las", "tiresias"]:
        measure(policy, asked)


if __name__ == "__main__":
    main()
