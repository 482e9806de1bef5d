"""Jobs that share one simulated GPU's memory through the book that a real machine has.

    python -m benchmarks.any_job.simulated_memory [--seed N ...] [--quick]

Mixes are those of `benchmarks.any_job`, drawn by the same seeds: arrivals and lengths are the same.
Four ways: one at a time; each as it arrives, where an allocation that does not fit ends its job;
the same with allocations that wait (`weft.node.memory.book`, which is told the time); and waiting
in the order of the policy, the job that ends soonest first. What is not modelled: PyTorch's caches,
freezing for promises, and how start-ups slow each other.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log2

from benchmarks.any_job.kinds import FITTING, OVERCOMMITTED, SPIKES
from benchmarks.any_job.kinds import draw as draw_scripts
from weft.node.memory.book import Book, GiveWay, GoOn, MemoryLine, Out, Wait

GPU, TOTAL, TICK_S = "gpu", 139.0, 0.05
MIXES = {"fitting": FITTING, "spikes": SPIKES, "overcommitted": OVERCOMMITTED}
STEP_S = 0.01  # of every kind: lengths are then as drawn
START_UP_S = 3.0
SLOWED = 0.5  # times its start-up takes longer for each script beside it: imports, CUDA contexts
SHORT_S = 16.0
SUSPEND_S_GB, RESUME_S_GB = 0.6, 0.2  # as measured on an H200
# GB held, GB of a peak, seconds between peaks and of one; the part of a GPU that it needs.
HOLDS = {"big": (70.0, 0.0, 0.0, 0.0), "spike": (1.0, 45.0, 2.0, 0.3)}
SMALL = (2.0, 0.0, 0.0, 0.0)
USE = {"transformer": 0.5, "compiled": 0.5, "unet": 0.5, "big": 0.3, "spike": 0.3, "loader": 0.1}
SOME_USE = 0.25
MB = 1 << 20


@dataclass
class Script:
    """One job: the memory that it wants next, how far it is, and since when it waits."""

    key: int
    kind: str
    at: float
    length_s: float
    up_s: float = 0.0
    done_s: float = 0.0
    held: float = 0.0
    wants: float = 0.0
    ended: float = 0.0
    failed: bool = False
    away_until: float = 0.0
    phases: list[tuple[float, float]] = field(default_factory=list)  # from when, GB

    def __post_init__(self) -> None:
        steady, peak, every_s, peak_s = HOLDS.get(self.kind, SMALL)
        self.phases = [(0.0, steady)]
        start = every_s
        while peak and start < self.length_s:
            self.phases += [(start, steady + peak), (start + peak_s, steady)]
            start += every_s

    @property
    def need(self) -> float:
        """The GB that it has to hold now."""
        return next(gb for since, gb in reversed(self.phases) if since <= self.done_s)


class Machine:
    """A GPU whose scripts obey the book; without one, what does not fit fails."""

    def __init__(self, scripts: list[Script], *, waits: bool, ordered: bool = False) -> None:
        self.scripts, self.waits, self.ordered = scripts, waits, ordered
        self.by_key = {script.key: script for script in scripts}
        self.book, self.now, self.suspended = Book(lambda _: True), 0.0, 0
        self.away: set[int] = set()

    @property
    def free(self) -> float:
        """The GB that nobody holds."""
        return TOTAL - sum(s.held for s in self.here() if s.key not in self.away)

    def here(self) -> Iterator[Script]:
        """Scripts that have come and not ended."""
        return (s for s in self.scripts if s.at <= self.now and not s.ended)

    def run(self) -> None:
        """Pass the time until all have ended."""
        known: set[int] = set()
        while not all(script.ended for script in self.scripts):
            self.now += TICK_S
            for script in self.here():
                if script.key not in known:
                    known.add(script.key)
                    self._obey(self.book.add_process(self.now, script.key, (str(script.key), 1), 0))
            if self.ordered:
                self.book.order = {str(s.key): (_doublings(s),) for s in self.here()}
            self._step()
            if self.waits:
                self._obey(self.book.tick(self.now))

    def _step(self) -> None:
        able = [s for s in self.here() if not s.wants and self.now >= s.away_until]
        able = [s for s in able if s.key not in self.away]
        trains = [s for s in able if s.up_s >= START_UP_S]
        for script in able:
            script.up_s += TICK_S / (1.0 + SLOWED * (len(able) - 1))
        used = sum(USE.get(s.kind, SOME_USE) for s in trains)
        for script in trains:
            if script.need > script.held and not self._take(script):
                continue
            if script.need < script.held:
                self._hold(script, script.need)
            script.done_s += TICK_S / max(used, 1.0)
            if script.done_s >= script.length_s:
                self._end(script)

    def _take(self, script: Script) -> bool:
        size = script.need - script.held
        if size <= self.free and not self.book.waits:
            self._hold(script, script.need)
            return True
        if not self.waits:
            if size <= self.free:
                self._hold(script, script.need)
                return True
            script.failed = True
            self._end(script)
            return False
        script.wants = size
        wait = Wait(-script.key, (str(script.key), 1), 0, GPU, int(size * MB), 0.0, self.now)
        free, total = int(self.free * MB), int(TOTAL * MB)
        self._obey(self.book.request_memory(self.now, -script.key, wait, free, total))
        return not script.wants

    def _hold(self, script: Script, gb: float) -> None:
        script.held = gb
        self._obey(self.book.hold(self.now, script.key, GPU, int(gb * MB)))

    def _end(self, script: Script) -> None:
        script.ended, script.held = self.now, 0.0
        self._obey(self.book.drop_member(self.now, script.key))

    def _obey(self, out: Out) -> None:
        for each in out:
            if isinstance(each, MemoryLine):
                self._hear(each)
                continue
            key = int(each.job[0])
            script = self.by_key[key]
            if isinstance(each, GiveWay):
                self.away.add(key)
                self.suspended += 1
                script.away_until = self.now + SUSPEND_S_GB * script.held
            elif isinstance(each, GoOn):
                self.away.discard(key)
                script.away_until = self.now + RESUME_S_GB * script.held

    def _hear(self, line: MemoryLine) -> None:
        script = self.by_key.get(-line.to)
        if script is None or not script.wants or line.text not in ("try", "look", "refuse"):
            return
        fits = line.text == "try" and script.wants <= self.free
        if fits:
            gb, script.wants = script.held + script.wants, 0.0
            script.held = gb
        elif line.text == "refuse":
            script.wants, script.failed = 0.0, True
            self._obey(self.book.drop_member(self.now, line.to))
            self._end(script)
            return
        left = int(self.free * MB)
        self._obey(self.book.record_try(self.now, line.to, got=fits, free=left))
        if fits:
            self._hold(script, script.held)


def _doublings(script: Script) -> float:
    """As the policy counts what is left, had it known that."""
    return float(int(log2(max((script.length_s - script.done_s) / SHORT_S, 1.0))))


def draw(mix: str, seed: int, seconds: float) -> list[Script]:
    """Twelve scripts as `benchmarks.any_job` draws them."""
    kinds = MIXES[mix]
    drawn = draw_scripts(seed, 12, kinds, seconds, dict.fromkeys(kinds, STEP_S))
    return [Script(n, job.kind, job.at, job.steps * STEP_S) for n, job in enumerate(drawn, 1)]


def run_alone(scripts: list[Script]) -> None:
    """Each when the one before it has ended."""
    free = 0.0
    for script in scripts:
        free = script.ended = max(free, script.at) + START_UP_S + script.length_s


def main() -> int:
    """Print a row for each mix, seed and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[9107, 8623])
    parser.add_argument("--quick", action="store_true", help="jobs of 5 s, not 12")
    asked = parser.parse_args()
    seconds = 5.0 if asked.quick else 12.0
    for mix in MIXES:
        for seed in asked.seed:
            for way in ("alone", "at once", "waiting", "in order"):
                scripts = draw(mix, seed, seconds)
                suspended = 0
                if way == "alone":
                    run_alone(scripts)
                else:
                    waits = way != "at once"
                    machine = Machine(scripts, waits=waits, ordered=way == "in order")
                    machine.run()
                    suspended = machine.suspended
                took = statistics.mean(script.ended - script.at for script in scripts)
                last = max(script.ended for script in scripts)
                failed = sum(script.failed for script in scripts)
                sys.stdout.write(
                    f"{mix:13} seed {seed} {way:8} average {took:5.1f} s, makespan {last:5.1f} s, "
                    f"{failed} failed, {suspended} suspensions\n"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
