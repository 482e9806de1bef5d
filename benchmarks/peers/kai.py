"""KAI's list of loads, on a Weft service: 500 nodes with 8 GPUs each, one load after the other.

    python -m benchmarks.peers.kai [--nodes 500] [--only gang reclaim]

The loads are those that NVIDIA/KAI-Scheduler publishes figures for: as many one-GPU jobs as there
are GPUs, a gang of 512, a job that cannot run, one GPU reclaimed from a queue that borrowed it, and
gangs that start once others are moved together. In seconds: 398, 49, 249, 13.9 and 456. Theirs
include a Kubernetes API server and kubelets that start pods; ours include an HTTP API, a log on
disk and an engine that starts nothing. Seconds are from the submission until the last of the jobs
runs, or says why not; where others must leave first, which takes them a second, it is also told
when the jobs had their devices promised.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.kueue import BATCH, SERVE
from benchmarks.service_load import Asker, cpu_s

LIMIT_S = 120.0
POLL_S = 0.05


@dataclass(frozen=True)
class Case:
    """A service that a load is tried on."""

    asker: Asker
    pid: int
    gpus: int

    def submit(self, count: int, **job: Any) -> list[str]:
        """So many jobs alike, in batches; their names."""
        many = [{"hints": {"duration_s": 1e6}, **job} for _ in range(count)]
        names: list[str] = []
        for at in range(0, count, BATCH):
            answer = self.asker.ask("POST", "/jobs/batch", {"jobs": many[at : at + BATCH]})
            names += answer["jobs"]
        return names

    def wait_running(self, count: int, *, at_most: bool = False) -> None:
        """Until so many run."""

        def done() -> bool:
            running = self.asker.ask("GET", "/cluster")["running"]
            return bool(running <= count if at_most else running >= count)

        self._wait(done)

    def wait_for(self, job: str, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Until that is true of a job."""
        seen: dict[str, Any] = {}

        def look() -> bool:
            seen.update(self.asker.ask("GET", f"/jobs/{job}"))
            return matches(seen)

        self._wait(look)
        return seen

    def wait_promised(self, jobs: list[str]) -> float:
        """Seconds until all of these have devices, which others may still have to leave."""
        began = time.monotonic()
        for job in jobs:
            self.wait_for(job, lambda seen: seen["allocation"] is not None)
        return time.monotonic() - began

    def _wait(self, done: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > LIMIT_S:
                sys.exit(f"not done after {LIMIT_S:.0f} s")
            time.sleep(POLL_S)


def fill(case: Case) -> str:
    case.submit(case.gpus, gpus=1)
    case.wait_running(case.gpus)
    return f"{case.gpus:,} one-GPU jobs run (KAI: 398 s)"


def gang(case: Case) -> str:
    size = min(512, case.gpus // 2)
    case.submit(1, gpus=size)
    case.wait_running(1)
    return f"a gang of {size} runs (KAI: 49 s)"


def cannot_run(case: Case) -> str:
    (job,) = case.submit(1, gpus=8)
    why = case.wait_for(job, lambda seen: bool(seen["reason"]))["reason"]
    return f"'{why}' (KAI: 249 s)"


def reclaim(case: Case) -> str:
    jobs = case.submit(1, gpus=1, tenant="owner", priority="guaranteed")
    decided = case.wait_promised(jobs)
    case.wait_for(jobs[0], lambda seen: seen["state"] == "running")
    return f"one GPU is reclaimed from a borrower, decided after {decided:.2f} s (KAI: 13.9 s)"


def consolidate(case: Case) -> str:
    count = min(41, case.gpus // 32)
    running = case.asker.ask("GET", "/cluster")["running"]
    decided = case.wait_promised(case.submit(count, gpus=8, nodes=1))
    case.wait_running(running + count)
    return (
        f"{count} gangs of 8 run once others have moved together, decided after {decided:.2f} s "
        "(KAI: 456 s)"
    )


def halve(case: Case) -> None:
    """Half of every node is in use by jobs of 4 GPUs."""
    names = case.submit(case.gpus // 4, gpus=4, preemptible=True)
    case.wait_running(len(names))
    seen: set[str] = set()
    for name in names:
        (on,) = case.asker.ask("GET", f"/jobs/{name}")["allocation"]
        if on["node"] in seen:
            case.asker.ask("DELETE", f"/jobs/{name}")
        seen.add(on["node"])
    case.wait_running(len(seen), at_most=True)


def crowd(case: Case, **more: Any) -> None:
    """All GPUs are in use."""
    case.submit(case.gpus, gpus=1, tenant="borrower", **more)
    case.wait_running(case.gpus)


def borrow(case: Case) -> None:
    """All GPUs are in use by jobs that give way."""
    crowd(case, priority="opportunistic", preemptible=True)


@dataclass(frozen=True)
class Load:
    """What is measured, after what, under which policy, with whose GPUs."""

    measure: Callable[[Case], str]
    before: Callable[[Case], None] | None = None
    policy: str = "fifo:backfill=true"
    owned: bool = False


LOADS = {
    "fill": Load(fill),
    "gang": Load(gang),
    "cannot-run": Load(cannot_run, crowd),
    "reclaim": Load(reclaim, borrow, owned=True),
    "consolidate": Load(consolidate, halve, "defrag:min_run_s=0|fifo:backfill=true"),
}


@contextmanager
def serve(load: Load, nodes: int) -> Iterator[Case]:
    own = f"owner={nodes * 4} borrower={nodes * 4}" if load.owned else ""
    engine = f"simulated:cluster={nodes}x8:a100,speed=1"
    with tempfile.TemporaryDirectory() as folder:
        state = str(Path(folder) / "state")
        command = [sys.executable, "-c", SERVE, engine, state, load.policy, own, ""]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            yield Case(Asker(address), server.pid, nodes * 8)
        finally:
            server.terminate()
            server.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--only", nargs="+", choices=LOADS, default=[*LOADS])
    asked = parser.parse_args()
    for name in asked.only:
        load = LOADS[name]
        with serve(load, asked.nodes) as case:
            if load.before is not None:
                load.before(case)
            began, cpu = time.monotonic(), cpu_s(case.pid)
            what = load.measure(case)
            took, cpu = time.monotonic() - began, cpu_s(case.pid) - cpu
            print(f"{name}: {took:.2f} s, {cpu:.2f} CPU s of the service: {what}", flush=True)


if __name__ == "__main__":
    main()
