"""A service with very many jobs that wait: restarts, and submits beside those who read accounts.

    python -m benchmarks.many_waiting [--jobs 20000] [--seconds 10]

Every figure stands beside that of a service without jobs, or without readers, of the same run. The
time until a service is back is CPU time of its process, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.service_history import Asker, Service, Times, job, repeat, service
from benchmarks.service_load import cpu_s

SWEEP = 1000  # jobs of one request
READERS = 10


def fill(it: Service, jobs: int) -> None:
    """Submit so many, in sweeps."""
    asker = it.asker()
    for start in range(0, jobs, SWEEP):
        grid = {"n": [*range(min(SWEEP, jobs - start))]}
        asker.ask("POST", "/jobs", {**job(start, "t0"), "sweep": {"grid": grid}})


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
    found = submits(it, seconds)
    for thread in threads:
        thread.join()
    return found


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
            fill(it, asked.jobs)
            calm, busy = submits(it, asked.seconds), beside_readers(it, asked.seconds)
        with service(empty, "fifo"):
            pass
        (bare_s, _), (took_s, found) = start_again(empty), start_again(full)
    print(f"restart: {took_s:.2f} CPU s with {found:,} jobs, {bare_s:.2f} with none")
    print(f"submit, nobody reads accounts {calm}")
    print(f"submit, {READERS} read accounts    {busy}")
    ratio = busy.quantile_ms(50) / calm.quantile_ms(50)
    print(f"median against nobody {ratio:.2f} times; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
