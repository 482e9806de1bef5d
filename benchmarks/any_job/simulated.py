"""Who runs when on one simulated GPU: what a promise to everybody costs and brings.

    python -m benchmarks.any_job.simulated [--seeds 20]

Jobs like those of `benchmarks.any_job` arrive over time. Each needs the GPU for a part of its step
and the host for the rest; beside others its steps take longer by what these use of the GPU, and
together they use no more than all of it. On an H200 small scripts use about a quarter of what is
modelled here: both are tried. The sharing of a service decides four times a second who
is frozen. Averages over seeds, against starting all as they arrive.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from weft.core.knowledge.measured import MeasuredAttempt
from weft.core.model.job import JobId
from weft.runtime.sharing.device import DeviceControl
from weft.runtime.sharing.speeds import ResidentSpeed

TICK_S, PROMISE, JOBS = 0.25, 1.3, 12
# Part of a step on the GPU, how much others' use of it slows one, steps a second, total told.
KINDS = {
    "transformer": (0.97, 0.31, 49.0, False),
    "compiled": (0.9, 0.31, 60.0, False),
    "lstm": (0.5, 0.4, 80.0, True),
    "mlp": (0.4, 0.48, 308.0, False),
    "unet": (0.9, 0.31, 20.0, True),
    "loader": (0.15, 0.15, 12.0, False),
    "graph": (0.6, 0.4, 400.0, False),
    "hugging-face": (0.6, 0.4, 15.0, True),
    "lightning": (0.4, 0.45, 50.0, True),
}


@dataclass
class Job:
    """One script: when it comes, how long it takes alone, how far it is."""

    name: str
    kind: str
    at: float
    length_s: float
    start_up_s: float
    done_s: float = 0.0
    asks: bool = False
    ended: float = 0.0
    broken_s: float = 0.0
    samples: list[tuple[float, float]] = field(default_factory=list)
    window: list[float] = field(default_factory=list)  # its paces of the last second

    def judge(self, pace: float) -> None:
        """Count a second in which it was slower than was promised."""
        self.window.append(pace)
        if len(self.window) * TICK_S >= 1.0:
            self.broken_s += PROMISE * statistics.mean(self.window) < 1.0
            self.window.clear()

    def see(self, now: float, promise: float | None) -> ResidentSpeed:
        """As the guard of a service sees it."""
        rate, known = KINDS[self.kind][2], KINDS[self.kind][3]
        total = self.length_s * rate if known else None
        measured = MeasuredAttempt(now, tuple(self.samples[-200:]), unit="step", total_steps=total)
        promise = PROMISE if self.asks else promise
        return ResidentSpeed(JobId(self.name), 1, measured, promise, now - self.at, firm=self.asks)


def draw(seed: int, seconds: float, ask: int) -> list[Job]:
    """Twelve jobs over 37 seconds, each of about so many of training after its start-up.

    One in `ask` asks for the promise; with 0 nobody does.
    """
    rng = random.Random(seed)
    kinds = [*KINDS, *KINDS]
    rng.shuffle(kinds)
    return [
        Job(
            f"job-{i:02}",
            kind,
            37.0 * i / JOBS,
            seconds * rng.uniform(0.4, 1.6),
            rng.uniform(8.0, 12.0),
            asks=ask > 0 and i % ask == 0,
        )
        for i, kind in enumerate(kinds[:JOBS])
    ]


def paces(jobs: Collection[Job], noise: random.Random, contention: float) -> Mapping[str, float]:
    """The part of its speed alone that each keeps beside the others."""
    speeds = {}
    for job in jobs:
        others = contention * sum(KINDS[other.kind][0] for other in jobs if other is not job)
        speeds[job.name] = 1.0 / (1.0 + KINDS[job.kind][1] * others)
    used = contention * sum(KINDS[job.kind][0] * speeds[job.name] for job in jobs)
    return {
        name: pace / max(used, 1.0) * noise.uniform(0.97, 1.03) for name, pace in speeds.items()
    }


def run(
    seed: int,
    seconds: float,
    promise: float | None,
    *,
    watched: bool,
    contention: float = 1.0,
    ask: int = 0,
) -> list[Job]:
    """All of a mix to its end; without `watched` nobody is ever frozen.

    Who asked for its promise counts what it loses while it is frozen, too.
    """
    jobs, noise, control = draw(seed, seconds, ask), random.Random(seed), DeviceControl()
    now, frozen = 0.0, frozenset[JobId]()
    while any(not job.ended for job in jobs):
        here = [job for job in jobs if job.at <= now and not job.ended]
        train = [job for job in here if now >= job.at + job.start_up_s]
        awake = [job for job in train if job.name not in frozen]
        speeds = paces(awake, noise, contention)
        now += TICK_S
        for job in awake:
            job.done_s += speeds[job.name] * TICK_S
            job.samples.append((now, job.done_s * KINDS[job.kind][2]))
            if now > job.at + job.start_up_s + 1.0:
                job.judge(speeds[job.name])
            if job.done_s >= job.length_s:
                job.ended = now
        for job in train:
            if job.asks and job not in awake and now > job.at + job.start_up_s + 1.0:
                job.judge(0.0)
        if watched:
            here = [job for job in here if not job.ended]
            seen = {JobId(job.name): job.see(now, promise) for job in here}
            frozen = control.tick(now, seen)
    return jobs


def main() -> int:
    """Print a line for each length and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    for seconds, contention in itertools.product((4.0, 20.0, 60.0), (0.25, 1.0)):
        part = partial(run, contention=contention)
        at_once = [average(part(seed, seconds, None, watched=False)) for seed in seeds]
        for name, promise, watched, ask in (
            ("at once", None, False, 0),
            ("more than turns", None, True, 0),
            ("promise of 1.3", PROMISE, True, 0),
            ("one asks", None, True, JOBS),
            ("one in four asks", None, True, 4),
        ):
            mixes = [part(seed, seconds, promise, watched=watched, ask=ask) for seed in seeds]
            ratios = [average(mix) / base for mix, base in zip(mixes, at_once, strict=True)]
            broken = [job.broken_s for mix in mixes for job in mix if job.asks or not ask]
            asked_s = f", {JOBS // ask} asked" if ask else ""
            sys.stdout.write(
                f"{seconds:3.0f} s, {contention:4.2f} of the GPU, {name:16} "
                f"{statistics.mean(ratios):.3f} of at once (at most "
                f"{max(ratios):.3f}); beyond 1.3: {sum(broken) / len(mixes):.0f} s a mix, "
                f"at most {max(broken):.1f} s a job{asked_s}\n"
            )
    return 0


def average(mix: list[Job]) -> float:
    """Seconds from arrival to end."""
    return statistics.mean(job.ended - job.at for job in mix)


if __name__ == "__main__":
    sys.exit(main())
