"""Kinds of script, and mixes of them drawn by a seed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "scripts"
# What each kind runs, with the number of steps to come last.
KINDS: dict[str, tuple[str, ...]] = {
    "transformer": ("loop.py", "transformer"),
    "compiled": ("loop.py", "compiled"),
    "lstm": ("loop.py", "lstm"),
    "mlp": ("loop.py", "mlp"),
    "unet": ("loop.py", "unet"),
    "loader": ("loader.py",),
    "graph": ("graph.py",),
    "hugging-face": ("hugging_face.py",),
    "lightning": ("lightning_fit.py",),
    "large-60": ("large.py", "60"),
    "large-90": ("large.py", "90"),
    "hostile": ("hostile.py",),
    "big": ("big.py", "70"),
    "spike": ("spike.py", "45"),
}
SMALL = ("transformer", "compiled", "lstm", "mlp", "unet", "loader", "graph", "hugging-face")
FITTING = (*SMALL, "lightning")
# Sixty and ninety GB do not fit side by side, and one kind takes whatever is left.
CROWDED = (*FITTING, "large-60", "large-90", "hostile")
# Memory that does not fit side by side all the time: two want 70 GB, and many 45 for a moment.
SPIKES = ("spike", "spike", "big", "transformer", "mlp")
OVERCOMMITTED = ("spike", "big", "mlp")
WARM_UP, TIMED = 10, 30  # steps
MANY_STEPS = {
    "graph": 2000,
    "mlp": 400,
    "hostile": 400,
    "big": 400,
    "spike": 1200,
}  # of kinds that are quick


@dataclass(frozen=True, slots=True)
class Job:
    """One script of a mix: when it arrives, how many steps it trains, the promise it asks for."""

    at: float
    kind: str
    steps: int
    slowdown: float | None = None

    @property
    def command(self) -> list[str]:
        """As its owner would type it."""
        script, *arguments = KINDS[self.kind]
        return [sys.executable, str(SCRIPTS / script), *arguments, str(self.steps)]


def draw(
    seed: int, count: int, kinds: tuple[str, ...], seconds: float, step_s: dict[str, float]
) -> list[Job]:
    """So many jobs, every kind about as often, each of `seconds` in the median, over time."""
    rng = random.Random(seed)
    order: list[str] = []
    while len(order) < count:
        order += rng.sample(kinds, len(kinds))
    order = order[:count]
    at, jobs = 0.0, []
    for kind in order:
        length = min(max(seconds * rng.lognormvariate(0.0, 0.6), seconds / 2), 4 * seconds)
        jobs.append(Job(round(at, 2), kind, max(20, round(length / step_s[kind]))))
        at += rng.expovariate(3.0 / seconds)
    return jobs


def time_steps(kinds: tuple[str, ...], at_once: int = 1) -> dict[str, float]:
    """Seconds of a step of each kind alone, from a short run of it; `at_once` hurries, roughly.

    It also fills the caches of compilers, so that no way of running the jobs pays for that.
    """
    alone = ("large", "hostile", "big", "spike")
    heavy = [kind for kind in dict.fromkeys(kinds) if kind.startswith(alone)]
    light = [kind for kind in dict.fromkeys(kinds) if kind not in heavy]
    with ThreadPoolExecutor(at_once) as pool:
        times = dict(zip(light, pool.map(time_step, light), strict=True))
    return {**times, **{kind: time_step(kind) for kind in heavy}}


def time_step(kind: str) -> float:
    """Of one kind."""
    steps = MANY_STEPS.get(kind, WARM_UP + TIMED)
    command = Job(0.0, kind, steps).command
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    points = read_steps(run.stdout)
    if len(points) < 2:
        raise RuntimeError(f"{kind} cannot be timed:\n{run.stderr[-2000:]}")
    (began, first), (ended, last) = points[max(1, len(points) // 4) - 1], points[-1]
    step_s = max((ended - began) / max(last - first, 1), 1e-5)
    print(f"{kind}: {1000 * step_s:.2f} ms a step", flush=True)
    return step_s


def read_steps(text: str) -> list[tuple[float, int]]:
    """Times and steps that a script printed."""
    points: list[tuple[float, int]] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 6 and words[0] in ("step", "final") and words[4] == "at":
            point = (float(words[5]), int(words[1]))
            if not points or point[0] > points[-1][0]:
                points.append(point)
    return points


def read_loss(text: str) -> str:
    """The last loss, to the last digit; empty for a script that did not come to its end."""
    lines = [line.split() for line in text.splitlines() if line.startswith("final ")]
    return lines[-1][3] if lines else ""


def sleep_until(at: float) -> None:
    """By the clock."""
    time.sleep(max(0.0, at - time.time()))
