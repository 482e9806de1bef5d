"""A service with very many jobs that wait: restarts, submits beside readers, pages and batches.

    python -m benchmarks.many_waiting [--jobs 20000] [--seconds 10]

Every figure stands beside that of a service without jobs, with fewer, or without readers, of the
same run. What pages, `/watch`, batches and a restart take is CPU time of the process that serves,
so that a busy machine does not count. Pages and `/watch` are asked for once it has nothing else to
do: after many submits it decides and writes a snapshot for a while.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import statistics
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from benchmarks.service_history import Asker, Service, Times, job, repeat, service
from benchmarks.service_load import cpu_s

SWEEP = 1000  # jobs of one request
READERS = 10
FEW = 1000  # jobs that a page is as fast with
BATCH = 250
ASKED, ROUNDS = 40, 5
PAGES = ("/jobs", "/jobs?state=pending", "/cluster")
QUIET_S = 0.05  # CPU seconds in a second


def fill(it: Service, jobs: int) -> None:
    """Submit so many, in sweeps."""
    asker = it.asker()
    for start in range(0, jobs, SWEEP):
        grid = {"n": [*range(min(SWEEP, jobs - start))]}
        asker.ask("POST", "/jobs", {**job(start, "t0"), "sweep": {"grid": grid}})


def rest(it: Service) -> None:
    """Wait until the service does next to nothing, for half a minute at most."""
    quiet, began = 0, time.monotonic()
    while quiet < 2 and time.monotonic() < began + 30.0:
        before = cpu_s(it.process.pid)
        time.sleep(1.0)
        quiet = quiet + 1 if cpu_s(it.process.pid) - before < QUIET_S else 0


def pages(it: Service) -> dict[str, float]:
    """CPU milliseconds of a page of jobs, of one of waiting jobs, and of the counts.

    The median of a few rounds: a collection of garbage or a snapshot that falls into one of them
    costs as much as all its requests.
    """
    asker, pid = it.asker(), it.process.pid
    asker.ask("GET", "/jobs")
    rest(it)
    latencies: dict[str, list[float]] = {path: [] for path in PAGES}
    for _ in range(ROUNDS):
        for path, times in latencies.items():
            before = cpu_s(pid)
            for _ in range(ASKED):
                asker.ask("GET", path)
            times.append(1e3 * (cpu_s(pid) - before) / ASKED)
    return {path: statistics.median(times) for path, times in latencies.items()}


def first_of_watch(it: Service) -> tuple[float, float]:
    """Milliseconds until `/watch` tells the first jobs while somebody else watches, and CPU time.

    CPU time holds what is told to a client before the service notices that it has left.
    """
    address, pid = it.address.removeprefix("http://"), it.process.pid
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as other:
        other.sendall(f"GET /api/v1/watch HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        assert other.recv(65_536).startswith(b"HTTP/1.1 200 ")
        threading.Thread(target=_swallow, args=(other,), daemon=True).start()
        rest(it)
        before, waits = cpu_s(pid), []
        for _ in range(ASKED):
            began = time.monotonic()
            with closing(http.client.HTTPConnection(address, timeout=120)) as line:
                line.request("GET", "/api/v1/watch")
                with line.getresponse() as answer:  # left open it is told all the others too
                    while answer.readline().strip():
                        pass
                waits.append(time.monotonic() - began)
        spent = cpu_s(pid) - before
        other.shutdown(socket.SHUT_RDWR)
    return 1e3 * statistics.median(waits), 1e3 * spent / ASKED


def _swallow(line: socket.socket) -> None:
    while line.recv(65_536):
        pass


def batches(it: Service, jobs: int) -> float:
    """CPU milliseconds of a job that is submitted with others."""
    asker, before = it.asker(), cpu_s(it.process.pid)
    for start in range(0, jobs, BATCH):
        body = {"jobs": [job(start + number, "t2") for number in range(BATCH)]}
        asker.ask("POST", "/jobs/batch", body)
    return 1e3 * (cpu_s(it.process.pid) - before) / jobs


def start_again(state: Path) -> tuple[float, int]:
    """CPU seconds until a service answers with its jobs, and how many it has."""
    with service(state, "fifo") as it:
        counts = it.asker().ask("GET", "/cluster")[1]
        return cpu_s(it.process.pid), counts["waiting"] + counts["running"]


def submits(it: Service, seconds: float) -> Times:
    """How long submits take."""
    return repeat(
        it, seconds, 0.1, lambda asker, number: asker.ask("POST", "/jobs", job(number, "t1"))[0]
    )


def beside_readers(it: Service, seconds: float) -> Times:
    """The same while ten read the accounts of a month as often as they are answered."""

    def read(asker: Asker, _: int) -> int:
        return asker.ask("GET", f"/accounting?since={time.time() - 2.6e6:.0f}&limit=100")[0]

    threads = [
        threading.Thread(target=repeat, args=(it, seconds, 0.0, read)) for _ in range(READERS)
    ]
    for thread in threads:
        thread.start()
    times = submits(it, seconds)
    for thread in threads:
        thread.join()
    return times


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        for state in (empty, full):
            state.mkdir(mode=0o700)
        with service(full, "fifo") as it:
            fill(it, FEW)
            few_pages, few_watch, few_batch = pages(it), first_of_watch(it), batches(it, FEW)
            fill(it, asked.jobs - 2 * FEW)
            many_pages, many_watch, many_batch = pages(it), first_of_watch(it), batches(it, FEW)
            calm, busy = submits(it, asked.seconds), beside_readers(it, asked.seconds)
        with service(empty, "fifo"):
            pass
        (bare_s, _), (took_s, jobs) = start_again(empty), start_again(full)
    print(f"restart: {took_s:.2f} CPU s with {jobs:,} jobs, {bare_s:.2f} with none")
    for path, few_ms in few_pages.items():
        ratio = many_pages[path] / max(few_ms, 0.1)
        print(
            f"GET {path:20} {few_ms:6.1f} CPU ms, then {many_pages[path]:6.1f}: {ratio:.1f} times"
        )
    for what, few_ms, many_ms in zip(("ms", "CPU ms"), few_watch, many_watch, strict=True):
        print(f"first of /watch {few_ms:.1f} {what}, then {many_ms:.1f}")
    print(f"a job of a batch {few_batch:.2f} CPU ms, then {many_batch:.2f}")
    print(f"submit, nobody reads accounts {calm}")
    print(f"submit, {READERS} read accounts    {busy}")
    ratio = busy.quantile_ms(50) / calm.quantile_ms(50)
    print(f"median against nobody {ratio:.2f} times; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
