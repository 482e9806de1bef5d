"""A comparison of eight policies by seeds, in one process and in two: CPU and wall seconds.

    python -m benchmarks.compare_speed [--seeds 10] [--jobs 1500] [--rounds 3]

One process and two take turns, and medians count: cores of one machine run at different speeds.
So do two processes that know nothing of each other, each with half of the seeds: what these cores
give at most, since both use one memory. On a machine with two idle cores wall tells how much faster
two are. On a busy one CPU does: two processes are at best `2 x one / two` times faster, and
`2 x one / (two + idle)` if they are idle as long as here; a process that waits for a processor is
not idle.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from weft.app.simulate.run import run_all, run_one
from weft.app.simulate.setup import Setup
from weft.sim.result import Outcome

SCHEDULED = Path("/proc/self/schedstat")
POLICIES = ("fifo", "fifo:backfill=true", "sjf", "srtf", "srsf", "las", "tiresias", "gittins")


@dataclass(frozen=True)
class TimedRun:
    """Runs a setup, and writes down when, in a file of each process."""

    folder: Path

    def __call__(self, setup: Setup, report: Callable[[float], None] | None = None) -> Outcome:
        """The outcome of a run."""
        began = _now()
        outcome = run_one(setup, report)
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(" ".join(map(str, (*began, *_now()))) + "\n")
        return outcome


def _now() -> tuple[float, float, float]:
    """By the clock, CPU seconds of this process, and those it waited for a processor."""
    waited = int(SCHEDULED.read_text().split()[1]) / 1e9 if SCHEDULED.exists() else 0.0
    return time.monotonic(), time.process_time(), waited


@dataclass(frozen=True)
class Part:
    """What one process did: its runs, and its seconds idle before, between and after them.

    It is idle while it neither has a processor nor waits for one. Before and after its runs, when
    it waits for others, these seconds are as many as it would have had of a processor.
    """

    runs: int
    before: float
    between: float
    after: float

    @classmethod
    def read(cls, path: Path, began: float, ended: float) -> Part:
        """From what a process wrote down."""
        runs = [[float(at) for at in line.split()] for line in path.read_text().splitlines()]
        between = sum(
            (start - end) - (cpu_start - cpu_end) - (waited_start - waited_end)
            for (*_, end, cpu_end, waited_end), (start, cpu_start, waited_start, *_) in pairwise(
                runs
            )
        )
        share = sum(run[4] - run[1] for run in runs) / sum(run[3] - run[0] for run in runs)
        return cls(len(runs), share * (runs[0][0] - began), between, share * (ended - runs[-1][3]))

    @property
    def idle_s(self) -> float:
        """All of it."""
        return self.before + self.between + self.after


def measure(setups: list[Setup], processes: int) -> tuple[float, float, list[Part]]:
    """CPU seconds of all processes, wall seconds, and what each did."""
    with tempfile.TemporaryDirectory() as folder:
        before, began = os.times(), time.monotonic()
        run_all(setups, processes=processes, run=TimedRun(Path(folder)))
        after, ended = os.times(), time.monotonic()
        parts = [Part.read(path, began, ended) for path in Path(folder).iterdir()]
    return sum(after[:4]) - sum(before[:4]), ended - began, parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1_500)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    setups = [
        Setup("philly", policy, "16x8:v100", jobs=asked.jobs, seed=seed)
        for policy in POLICIES
        for seed in range(asked.seeds)
    ]
    run_all(setups[:1])  # what is loaded late is loaded
    faster, apart = [], []
    for _ in range(asked.rounds):
        single, one_wall, _ = measure(setups, 1)
        two, two_wall, parts = measure(setups, 2)
        apart_wall = measure_apart(setups)
        show(len(setups), (single, one_wall), (two, two_wall), parts)
        print(f"  {one_wall / apart_wall:.2f}x by wall if each runs half on its own", flush=True)
        faster.append(one_wall / two_wall)
        apart.append(one_wall / apart_wall)
    print(
        f"{median(faster):.2f}x as fast by wall, the median of {len(faster)}; "
        f"{median(apart):.2f}x if each process runs half on its own"
    )


def measure_apart(setups: list[Setup]) -> float:
    """Wall seconds of two processes, each with every second seed."""
    began = time.monotonic()
    halves = [[s for s in setups if s.seed % 2 == half] for half in (0, 1)]
    other = mp.get_context("fork").Process(target=run_in_turn, args=(halves[1],))
    other.start()
    run_in_turn(halves[0])
    other.join()
    return time.monotonic() - began


def run_in_turn(setups: list[Setup]) -> None:
    """One after another, those of a seed together, and no result is kept."""
    for setup in sorted(setups, key=lambda s: s.seed):
        run_one(setup)


def show(
    runs: int, alone: tuple[float, float], both: tuple[float, float], parts: list[Part]
) -> None:
    """One process and two, each with CPU seconds and seconds by the clock."""
    print(f"{runs} runs: one process {alone[0]:.1f} CPU s, {alone[1]:.1f} s;")
    print(f"  two {both[0]:.1f} CPU s, {both[1]:.1f} s")
    for part in parts:
        print(
            f"  {part.runs} runs; idle {part.before:.2f} s before, {part.between:.2f} between, "
            f"{part.after:.2f} after"
        )
    idle = sum(part.idle_s for part in parts)
    print(f"  {alone[1] / both[1]:.2f}x as fast by wall; load {os.getloadavg()[0]:.1f}")
    by_cpu, with_idle = 2 * alone[0] / both[0], 2 * alone[0] / (both[0] + idle)
    print(f"  {by_cpu:.2f}x by CPU, {with_idle:.2f}x with what was idle", flush=True)


if __name__ == "__main__":
    main()
