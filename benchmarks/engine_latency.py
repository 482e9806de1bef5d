"""How long engines take to start, stop, resize and notice a lost node, beside the local one.

    python -m benchmarks.engine_latency [ENGINE ...] [--rounds 5]

Engines are those of `tests.clusters.testbed`, on throw-away clusters of this machine. Every engine
runs the same jobs (`sleep`) in the same process; times are medians, and the last column is the
start as a multiple of the local engine's in the same run. A loaded machine slows all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.clusters.testbed import TESTBEDS, Testbed

from weft.app.engine import build_engine
from weft.core.events.event import Event, Failed, Started, StartFailed, Stopped
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.protocols import Engine
from weft.run_terms import Processes

PATIENCE_S = 300.0


@dataclass
class Times:
    """Seconds of each round."""

    start: list[float] = field(default_factory=list)
    stop: list[float] = field(default_factory=list)
    resize: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)


async def measure(bed: Testbed, rounds: int) -> Times:
    """All rounds on one engine."""
    times = Times()
    with tempfile.TemporaryDirectory(prefix="weft-latency-", ignore_cleanup_errors=True) as folder:
        engine = build_engine(bed.engine, state=Path(folder) / "state")
        await engine.nodes()
        await engine.adopt(set())
        try:
            for number in range(rounds):
                await one_round(engine, number, times)
            if bed.kill_node is not None and bed.restore_node is not None:
                await lose_a_node(engine, bed, times)
        finally:
            await engine.close()
    return times


async def one_round(engine: Engine, number: int, times: Times) -> None:
    """A job is started on one device, resized to two, and stopped."""
    job = Job(
        JobId(f"round-{number}"),
        demand=Demand(1, 1, 2),
        launch=Launch(("sleep", "1000"), workdir="/", processes=Processes.PER_GPU),
    )
    node = (await engine.nodes())[0].id
    small, large = (Allocation((Slice(node, tuple(range(n))),)) for n in (1, 2))

    async def start(on: Allocation, attempt: int) -> None:
        await engine.start(job, on, attempt)
        await wait_for(engine, Started)

    async def stop(attempt: int) -> None:
        await engine.stop(job.id, attempt, 10.0)
        await wait_for(engine, Stopped)

    with timing(times.start):
        await start(small, 1)
    with timing(times.resize):
        await stop(1)
        await start(large, 2)
    with timing(times.stop):
        await stop(2)


@contextmanager
def timing(into: list[float]) -> Iterator[None]:
    """Append how long the block takes, in seconds."""
    began = time.monotonic()
    yield
    into.append(time.monotonic() - began)


async def lose_a_node(engine: Engine, bed: Testbed, times: Times) -> None:
    """From the death of a machine until the attempt on it is told to be lost."""
    assert bed.kill_node is not None
    assert bed.restore_node is not None
    job = Job(JobId("torn"), demand=Demand(1), launch=Launch(("sleep", "1000"), workdir="/"))
    node = (await engine.nodes())[-1].id
    await engine.start(job, Allocation((Slice(node, (0,)),)), 1)
    await wait_for(engine, Started)
    with timing(times.loss):
        await asyncio.to_thread(bed.kill_node, node)
        await wait_for(engine, (Failed, StartFailed))
    await asyncio.to_thread(bed.restore_node, node)


async def wait_for(engine: Engine, kinds: type[Event] | tuple[type[Event], ...]) -> None:
    """Wait for the next event of these kinds; an end that was not expected is an error."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in engine.events():
            if isinstance(event, kinds):
                return
            assert not isinstance(event, (Failed, StartFailed)), event.reason


def show(name: str, times: Times, local: Times) -> str:
    """One row of the table."""

    def middle(some: list[float]) -> str:
        return f"{statistics.median(some):8.2f}" if some else "       -"

    ratio = statistics.median(times.start) / statistics.median(local.start)
    each = " ".join(map(middle, (times.start, times.stop, times.resize, times.loss)))
    return f"{name:<12} {each} {ratio:9.1f}"


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("engines", nargs="*", help="names of testbeds; local is always measured")
    parse.add_argument("--rounds", type=int, default=5)
    options = parse.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clusters are torn down all the same
    names = ["local", *(name for name in options.engines or TESTBEDS if name != "local")]
    print(f"{'engine':<12} {'start':>8} {'stop':>8} {'resize':>8} {'lost':>8} {'x local':>9}")
    local: Times | None = None
    for name in names:
        with TESTBEDS[name]() as bed:
            times = asyncio.run(measure(bed, options.rounds))
        local = local or times
        print(show(name, times, local), flush=True)


if __name__ == "__main__":
    main()
