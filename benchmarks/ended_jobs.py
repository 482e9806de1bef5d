"""What jobs that ended or wait cost: memory, disk and the next start, before and after pruning.

    python -m benchmarks.ended_jobs --jobs 100000 [--waiting]

Writes a log of that many jobs, each submitted, decided, started, reported and finished; or all of
them waiting. Then opens the scheduler of a service on it, in processes of their own: on the log
alone, on the snapshot that this left, pruned to a hundredth, and after that; and one without jobs,
for what it costs itself. Bytes a job are those of the log, the snapshot, the table
of ended jobs and memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from weft.app.serve.live import Live, Settings
from weft.core.events.event import Decided, Event, Finished, NodeUp, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.perf.replay import Replay
from weft.runtime.recovery.retention import Keep
from weft.sim.engine import SimulatedEngine
from weft.store.sqlite import SqliteStore

ENGINE = "simulated:cluster=8x8:a100,speed=1"
BATCH = 5_000
# Numbers and times take 8 bytes each; indexes are not counted.
ROWS = """
SELECT coalesce(sum(length(data) + length(job) + length(tenant) + length("user") + length(name)
+ length(short) + length(app) + length(outcome) + 24), 0) FROM ended_jobs
"""
EVER = Keep(0.0, 0, 0.0, 0)


def story(jobs: int, *, waiting: bool) -> Iterator[tuple[float, Event]]:
    """One job after the other, ten seconds each, until now; or all of them submitted."""
    nodes = asyncio.run(SimulatedEngine("8x8:a100", perf=Replay()).nodes())
    at = time.time() - 10.0 * jobs
    for node in nodes:
        yield at, NodeUp(node)
    for i in range(jobs):
        at += 10.0
        name = JobId(f"resnet18-{i:08x}")
        launch = Launch(
            ("python", "train.py", "--lr", str(i % 17)), f"/home/u{i % 40}/work", name="resnet18"
        )
        job = Job(
            name,
            at,
            Demand(1 + i % 4),
            tenant=f"team-{i % 8}",
            user=f"u{i % 40}",
            model="resnet18",
            launch=launch,
        )
        on = Allocation((Slice(nodes[i % 8].id, tuple(range(job.demand.gpus))),))
        yield at, Submitted(job)
        if waiting:
            continue
        yield at + 1.0, Decided(i + 1, {name: on})
        yield at + 2.0, Started(name, 1)
        yield at + 5.0, Reported(name, 1, Report(step_s=0.1, steps=50.0, loss=2.0 + i % 3))
        yield at + 9.0, Finished(name, 1)


def write_log(folder: Path, jobs: int, *, waiting: bool) -> None:
    """The log alone, without a snapshot."""
    store = SqliteStore(folder / "events.db")
    rows: list[tuple[float, Event]] = []
    for row in story(jobs, waiting=waiting):
        rows.append(row)
        if len(rows) == BATCH:
            store.append(rows)
            rows = []
    store.append(rows)
    store.close()


def open_once(folder: Path, keep: Keep) -> dict[str, float]:
    """A start, and what it takes of memory once it is open; pruned if `keep` says so."""

    async def go() -> dict[str, float]:
        began, cpu = time.perf_counter(), time.process_time()
        live = Live(Settings(engine=ENGINE, state=folder, keep=EVER))
        await live.open()
        took = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
        live.retention.keep = keep
        await live.retention.prune()
        measured = {
            **took,
            "jobs": float(len(live.driver.ledger.jobs)),
            "events": float(live.driver.seq),
            "rss_mb": _rss_mb(),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        await live.close()
        return measured

    return asyncio.run(go())


def in_process(folder: Path, keep_jobs: int) -> dict[str, float]:
    """The same in a process of its own, so that nobody's memory is counted twice."""
    command = [sys.executable, "-m", "benchmarks.ended_jobs", "--open", str(folder)]
    done = subprocess.run(
        [*command, "--keep", str(keep_jobs)], capture_output=True, text=True, check=True
    )
    body: dict[str, float] = json.loads(done.stdout)
    return {**body, "db_mb": sum(p.stat().st_size for p in folder.glob("events.db*")) / 1e6}


def stored(folder: Path) -> dict[str, int]:
    """Bytes of the log, of the last snapshot, and of the rows of ended jobs."""
    with closing(sqlite3.connect(folder / "events.db")) as db:
        (log,) = db.execute("SELECT coalesce(sum(length(json)), 0) FROM events").fetchone()
        last = db.execute("SELECT length(data) FROM snapshots ORDER BY seq DESC LIMIT 1")
        (snapshot,) = last.fetchone() or (0,)
        (rows,) = db.execute(ROWS).fetchone()
    return {"log": log, "snapshot": snapshot, "table": rows}


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--waiting", action="store_true", help="nobody starts, all wait")
    parser.add_argument("--open", type=Path)
    parser.add_argument("--keep", type=int, default=0)
    asked = parser.parse_args()
    if asked.open is not None:
        print(json.dumps(open_once(asked.open, Keep(0.0, asked.keep, 0.0, 0))))
        return
    with tempfile.TemporaryDirectory() as place:
        full, empty = Path(place) / "full", Path(place) / "empty"
        full.mkdir()
        empty.mkdir()
        began = time.perf_counter()
        write_log(full, asked.jobs, waiting=asked.waiting)
        print(f"{asked.jobs} jobs written in {time.perf_counter() - began:.0f} s")
        write_log(empty, 0, waiting=False)
        opened = [
            ("no jobs", empty, 0),
            ("from the log alone", full, 0),
            ("from a snapshot", full, 0),
            ("pruned to a hundredth", full, asked.jobs // 100),
            ("after pruning", full, 0),
        ]
        alone_mb = 0.0
        for label, folder, keep in opened[:3] if asked.waiting else opened:
            measured = in_process(folder, keep)
            alone_mb = alone_mb or measured["rss_mb"]
            sizes = {**stored(folder), "memory": 1e6 * (measured["rss_mb"] - alone_mb)}
            measured |= {f"{name} B/job": size / asked.jobs for name, size in sizes.items()}
            numbers = "  ".join(f"{name} {value:,.2f}" for name, value in measured.items())
            print(f"{label:22} {numbers}", flush=True)


if __name__ == "__main__":
    main()
