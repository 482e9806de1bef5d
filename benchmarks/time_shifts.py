"""Two real trainings on one narrow link, unshifted and with time shifts, on the CPU.

A job computes for a while and then sends what its iteration has to send over a link that both
share: a token bucket behind a Unix socket, which serves whoever sends in small pieces by turns. The
jobs run through the local engine and begin together. The engine tells them, while they run, to
begin their iterations at the same time, where each gets half of the link, and then half a period
apart. Without being told anything they meet by chance: the first number. With `--gangs` each
job is a gang of two ranks. `python -m benchmarks.time_shifts [--iterations N] [--gangs]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice, TimeShift
from weft.core.model.launch import Launch
from weft.engines.local import LocalEngine
from weft.run_terms import Processes
from weft.wire.attempt import short_path

BYTES_PER_S = 10e6
COMPUTE_S, SEND_S = 0.45, 0.40
# A little more than an iteration takes, apart and in step: a job can always wait for its beat.
APART_S, IN_STEP_S = 1.06 * (COMPUTE_S + SEND_S), 1.04 * (COMPUTE_S + 2 * SEND_S)
PIECE = 50_000
BURST_S = 0.02  # what a link that was held up by others on the machine may make good
LIMIT_S = 120.0
NAMES = ("one", "two")
SCRIPT = """
import sys, time
sys.path.insert(0, {root!r})
import torch
import weft_train as wt
from benchmarks.time_shifts import COMPUTE_S, send

link, seen = sys.argv[1:]
job = wt.init(checkpoint_every_s=600.0, report_every_s=0.2)
model = torch.nn.Linear(4, 1)
model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01), scaling="none")
loader = job.loader([torch.ones(4)] * 1000, batch_size=2)
with open(seen if job.rank == 0 else "/dev/null", "w", buffering=1) as out:
    for epoch in job.epochs(1000):
        for batch in loader:
            with job.step():
                time.sleep(COMPUTE_S)
                if job.rank == 0:
                    send(link)
                job.backward(model(batch).sum())
            print(time.monotonic(), file=out)
"""


class SharedLink:
    """A link of so many bytes a second: senders that are there at the same time go by turns.

    Nothing passes before `expected` of them have connected, so that they begin together.
    """

    def __init__(self, path: str, bytes_per_s: float, expected: int) -> None:
        self.path, self._rate, self._expected = path, bytes_per_s, expected
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(path)
        self._door.listen()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> SharedLink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._door.close()

    def _serve(self) -> None:
        left: dict[socket.socket, int] = {}
        with selectors.DefaultSelector() as ready:
            ready.register(self._door, selectors.EVENT_READ)
            free_at = time.monotonic()
            while not self._over.is_set():
                for key, _ in ready.select(0.1):
                    line = key.fileobj
                    assert isinstance(line, socket.socket)
                    if line is self._door:
                        fresh, _ = self._door.accept()
                        left[fresh] = 0
                        if len(left) == self._expected:
                            for sock in left:
                                ready.register(sock, selectors.EVENT_READ)
                        continue
                    passed = self._pass(line, left)
                    if passed < 0:
                        ready.unregister(line)
                        continue
                    free_at = max(free_at, time.monotonic() - BURST_S) + passed / self._rate
                    time.sleep(max(free_at - time.monotonic(), 0.0))
        for line in left:
            line.close()

    def _pass(self, line: socket.socket, left: dict[socket.socket, int]) -> int:
        """Let one piece of a sender through; how many bytes, -1 once it is gone."""
        if not left[line]:
            header = line.recv(8, socket.MSG_WAITALL)
            if len(header) < 8:
                return -1
            (left[line],) = struct.unpack("!Q", header)
        piece = line.recv(min(PIECE, left[line]))
        left[line] -= len(piece)
        if not left[line]:
            line.sendall(b"!")
        return len(piece) or -1


_lines: dict[str, socket.socket] = {}


def send(path: str, size: int = int(SEND_S * BYTES_PER_S)) -> None:
    """Send so many bytes over the link, and wait until all have passed."""
    if path not in _lines:
        _lines[path] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _lines[path].connect(path)
    line = _lines[path]
    line.sendall(struct.pack("!Q", size) + bytes(size))
    if line.recv(1) != b"!":
        sys.exit("the link is gone")


class Medians(NamedTuple):
    """Seconds of an iteration of both jobs: left alone, in step, and half a period apart."""

    free: float
    in_step: float
    apart: float


async def measure(folder: Path, iterations: int, ranks: int) -> Medians:
    """Both jobs on one link, told three times when to begin their iterations."""
    link = short_path(folder / "link.sock")
    script = folder / "job.py"
    script.write_text(SCRIPT.format(root=str(Path(__file__).resolve().parents[1])))
    engine = LocalEngine(
        folder / "state", slots=ranks * len(NAMES), cpu=True, name="here", pin=False
    )
    await engine.adopt(())
    await until(lambda: engine.is_warm)  # ranks are forked from one process that has torch
    seen = {name: folder / f"seen-{name}" for name in NAMES}
    with SharedLink(link, BYTES_PER_S, len(NAMES)):
        async with listening(engine):
            on = {name: place(i, ranks) for i, name in enumerate(NAMES)}
            for name in NAMES:
                command = (sys.executable, str(script), link, str(seen[name]))
                launch = Launch(command, str(folder), processes=Processes.PER_GPU)
                await engine.start(Job(JobId(name), launch=launch), on[name], 1)
            times = [await median_iteration(seen, iterations)]
            for period, part in ((IN_STEP_S, 0.0), (APART_S, 0.5)):
                for i, name in enumerate(NAMES):
                    to = replace(on[name], time_shift=TimeShift(period, i * part * period))
                    await engine.adjust(JobId(name), 1, to)
                times.append(await median_iteration(seen, iterations))
            for name in NAMES:
                await engine.stop(JobId(name), 1, 10.0)
            await until(lambda: not engine.running())
    await engine.close()
    return Medians(*times)


@contextlib.asynccontextmanager
async def listening(engine: LocalEngine) -> AsyncIterator[None]:
    """With somebody who takes the engine's news."""

    async def listen() -> None:
        async for _ in engine.events():
            pass

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()


def place(job: int, ranks: int) -> Allocation:
    return Allocation((Slice(NodeId("here"), tuple(range(job * ranks, (job + 1) * ranks))),))


async def median_iteration(seen: dict[str, Path], iterations: int) -> float:
    """Seconds of an iteration, over the next `iterations` of each job, after some to settle."""
    first = {name: len(times(path)) + 4 for name, path in seen.items()}
    await until(lambda: all(len(times(p)) > first[n] + iterations for n, p in seen.items()))
    ends = {name: times(path) for name, path in seen.items()}
    steps = [
        after - before
        for name, at in ends.items()
        for before, after in pairwise(at[first[name] : first[name] + iterations + 1])
    ]
    return statistics.median(steps)


def times(path: Path) -> list[float]:
    return [float(line) for line in whole_lines(path)] if path.exists() else []


def whole_lines(path: Path) -> Iterator[str]:
    return (line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n"))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not true():
            await asyncio.sleep(0.1)


def run(iterations: int, ranks: int = 1) -> Medians:
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/tmp") as scratch:
        return asyncio.run(measure(Path(scratch), iterations, ranks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--gangs", action="store_true", help="two ranks a job")
    args = parser.parse_args()
    done = run(args.iterations, 2 if args.gangs else 1)
    alone = COMPUTE_S + SEND_S
    ratios = (f"{name.replace('_', ' ')} {s / alone:.2f}" for name, s in done._asdict().items())
    print(f"{', '.join(ratios)} of an iteration alone")
    best = (COMPUTE_S + 2 * SEND_S) / alone
    gain = done.in_step / done.apart
    print(f"apart is faster by {gain:.2f} than in step; {best:.2f} if nothing is lost at all")
    return 0 if gain > 1.1 else 1


if __name__ == "__main__":
    sys.exit(main())
