"""Load on the driver: 5,000 queued and 500 running jobs on the simulated engine.

    python -m benchmarks.driver_load

Submits at a fixed rate through the SQLite store, as a service would, while jobs start and finish,
and reports what a submit costs, whether the rate was held, and what listing all jobs costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.predict.hinted import Hinted
from weft.runtime.loop.driver import Driver
from weft.sim.engine import SimulatedEngine
from weft.store.sqlite import SqliteStore


async def load(
    folder: Path, policy: str, queued: int, rate: float, seconds: float
) -> dict[str, float]:
    """Fill the queue, then submit at `rate` for `seconds`; what was measured."""
    engine = SimulatedEngine("63x8:a100", speed=1.0, perf=Replay())
    store = SqliteStore(folder / "events.db")
    driver = Driver(
        engine, store, policy=policy, knowledge=lambda: Knowledge(Hinted(), LinearBeliefs())
    )
    await driver.open()
    rng = random.Random(0)
    numbers = iter(range(10**9))

    def job() -> Job:
        length = rng.uniform(60.0, 600.0)
        return Job(JobId(f"j{next(numbers)}"), demand=Demand(1), hints={"duration_s": length})

    await asyncio.gather(*(driver.submit(job()) for _ in range(queued + 504)))
    running = sum(job.state == "running" for job in driver.jobs())
    took, cpu, began = [], time.process_time(), time.monotonic()
    for i in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + i / rate - time.monotonic()))
        at = time.monotonic()
        await driver.submit(job())
        took.append(time.monotonic() - at)
    wall = time.monotonic() - began
    cpu = time.process_time() - cpu
    listed = time.process_time()
    jobs = driver.jobs()
    listed = time.process_time() - listed
    await driver.close()
    store.close()
    return {
        "jobs": len(jobs),
        "running": running,
        "submits_per_s": round(len(took) / wall, 1),
        "submit_ms_p50": round(statistics.median(took) * 1e3, 2),
        "submit_ms_p99": round(statistics.quantiles(took, n=100)[98] * 1e3, 2),
        "cpu_ms_per_submit": round(cpu / len(took) * 1e3, 2),
        "list_cpu_ms": round(listed * 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--queued", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-load-") as folder:
        seen = asyncio.run(
            load(Path(folder), asked.policy, asked.queued, asked.rate, asked.seconds)
        )
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
