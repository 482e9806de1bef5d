"""Kueue's own load test, on a Weft service: queues in cohorts, jobs of a second or less.

    python -m benchmarks.peers.kueue [--large] [--policy NAME] [--share 0.1]

The generator is that of Kueue's scheduler performance test (kubernetes-sigs/kueue,
test/performance/scheduler/configs): every queue has 20 units of its own and may borrow from its
cohort; small, medium and large jobs arrive at fixed intervals. A unit is a GPU of the simulated
engine here. Published: 351 s for the baseline, whose capacity alone takes 66 s, and 1,179 s for
the large one. Theirs includes a Kubernetes API server; ours includes an HTTP API, a log on disk,
and an engine that starts nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.service_load import Asker, cpu_s

UNITS = 20  # of a queue
BATCH = 500
SERVE = """
import sys
from pathlib import Path
from weft.app.serve.live import Settings
from weft.app.serve.rules import read_lending
from weft.service.main import serve
engine, state, policy, own, parent = sys.argv[1:]
lending = read_lending(own.split(), parent.split(), None, 0.0)
settings = Settings(engine=engine, state=Path(state), port=0, policy=policy, lending=lending)
serve(settings, ready=lambda address: print(address, flush=True))
"""


@dataclass(frozen=True)
class Class:
    """Jobs alike of one queue."""

    name: str
    count: int
    every_s: float
    runs_s: float
    priority: str
    units: int


@dataclass(frozen=True)
class Load:
    """One of the published loads."""

    cohorts: int
    queues: int
    classes: tuple[Class, ...]
    published_s: float

    @property
    def bound_s(self) -> float:
        """What its jobs take where no unit is ever idle."""
        return sum(class_.count * class_.runs_s * class_.units for class_ in self.classes) / UNITS


BASELINE = Load(
    5,
    6,
    (
        Class("small", 350, 0.1, 0.2, "opportunistic", 1),
        Class("medium", 100, 0.5, 0.5, "normal", 5),
        Class("large", 50, 1.2, 1.0, "guaranteed", 20),
    ),
    351.0,
)
LARGE = Load(
    10,
    100,
    (
        Class("small", 35, 0.02, 0.05, "opportunistic", 1),
        Class("medium", 10, 0.05, 0.1, "normal", 5),
        Class("large", 5, 0.2, 0.2, "guaranteed", 20),
    ),
    1179.0,
)


def arrivals(load: Load) -> list[tuple[float, dict[str, Any]]]:
    """All jobs with the second they are submitted at, in that order."""
    jobs = []
    for cohort in range(load.cohorts):
        for queue in range(load.queues):
            tenant = f"c{cohort}q{queue}"
            for kind in load.classes:
                for number in range(kind.count):
                    body = {
                        "id": f"{tenant}-{kind.name}-{number}",
                        "tenant": tenant,
                        "gpus": kind.units,
                        "priority": kind.priority,
                        "hints": {"duration_s": kind.runs_s},
                    }
                    jobs.append((number * kind.every_s, body))
    return sorted(jobs, key=lambda job: job[0])


def serve(load: Load, policy: str, folder: str) -> subprocess.Popen[str]:
    units = load.cohorts * load.queues * UNITS
    queues = [(f"c{c}q{q}", f"c{c}") for c in range(load.cohorts) for q in range(load.queues)]
    own = [f"{queue}={UNITS}" for queue, _ in queues]
    own += [f"c{cohort}={UNITS * load.queues}" for cohort in range(load.cohorts)]
    parent = [f"{queue}={cohort}" for queue, cohort in queues]
    engine = f"simulated:cluster={-(-units // 8)}x8:a100,speed=1"
    command = [sys.executable, "-c", SERVE, engine, folder, policy, " ".join(own), " ".join(parent)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def submit(address: str, jobs: list[tuple[float, dict[str, Any]]]) -> float:
    """Submit each when it is due, in batches; the most that one was late, in seconds."""
    asker, began, sent, late = Asker(address), time.monotonic(), 0, 0.0
    while sent < len(jobs):
        now = time.monotonic() - began
        due = [body for at, body in jobs[sent : sent + BATCH] if at <= now]
        if not due:
            time.sleep(min(jobs[sent][0] - now, 0.1))
            continue
        late = max(late, now - jobs[sent][0])
        asker.ask("POST", "/jobs/batch", {"jobs": due})
        sent += len(due)
    return late


def wait(address: str, total: int, limit_s: float) -> dict[str, Any]:
    asker, began = Asker(address), time.monotonic()
    while True:
        now = asker.ask("GET", "/cluster")
        if now["running"] + now["waiting"] == 0:
            return now
        if time.monotonic() - began > limit_s:
            left = f"{now['running']} running and {now['waiting']} waiting"
            sys.exit(f"{left} of {total} at the limit")
        time.sleep(0.2)


def admissions(address: str) -> dict[str, list[float]]:
    """Seconds that jobs of each class waited for their first start."""
    asker, after = Asker(address), ""
    waited: dict[str, list[float]] = defaultdict(list)
    while True:
        page = asker.ask("GET", f"/jobs?limit=1000{after}")
        for job in page["jobs"]:
            if job["started"] is None:
                sys.exit(f"{job['id']} ended as {job['state']} and never started")
            waited[job["id"].split("-")[1]].append(job["started"] - job["submitted"])
        if page["next"] is None:
            return waited
        after = f"&after={page['next']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="50,000 jobs in 1,000 queues")
    parser.add_argument("--policy", default="fifo:backfill=true")
    parser.add_argument("--share", type=float, default=1.0, help="only this part of the arrivals")
    parser.add_argument("--limit", type=float, default=1200.0, help="give up after so many seconds")
    asked = parser.parse_args()
    load = LARGE if asked.large else BASELINE
    jobs = arrivals(load)
    jobs = jobs[: int(len(jobs) * asked.share)]
    with tempfile.TemporaryDirectory() as folder:
        server = serve(load, asked.policy, str(Path(folder) / "state"))
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            began, cpu = time.monotonic(), cpu_s(server.pid)
            late = submit(address, jobs)
            submitted = time.monotonic() - began
            now = wait(address, len(jobs), asked.limit)
            took, cpu = time.monotonic() - began, cpu_s(server.pid) - cpu
            print(f"{len(jobs):,} jobs under {asked.policy}: {took:.1f} s, all submitted after")
            print(f"  {submitted:.1f} s ({late:.1f} s late at most), {now['decisions']} decisions,")
            print(f"  {cpu:.1f} CPU s of the service, {1e3 * cpu / len(jobs):.2f} ms a job")
            print(f"  capacity alone takes {load.bound_s:.0f} s; Kueue: {load.published_s:.0f} s")
            for name, waited in sorted(admissions(address).items()):
                print(f"  {name}: {sum(waited) / len(waited):.2f} s from submission to start")
        finally:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
