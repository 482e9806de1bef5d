"""CPU time of one step (fold, decide, check, act) against active jobs and GPUs.

Each point: a cluster with that many active jobs, then steps in which one job ends and another
arrives. One number is varied at a time; the plot is docs/images/decision_scaling.svg.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path

import numpy as np

from weft.core.events.actions import Start
from weft.core.events.event import Event, Finished, Started, Stopped, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.core.state.cells import TableColumns
from weft.testing.build import FixedPredictor

POLICIES = ("fifo", "srtf", "las", "tiresias")
ORDERS = ("fifo", "srtf", "tiresias")  # las swaps hundreds of jobs in such a step: no order's cost
COLOURS = ("#5c6470", "#0072b2", "#e69f00", "#009e73")
JOBS = (100, 1000, 10_000, 100_000)
GPUS = (64, 512, 4096, 131_072)
AT_JOBS, AT_GPUS = 10_000, 4096  # what the other number is while one is varied
STEPS = 20
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "decision_scaling.svg"
WIDTH, HEIGHT, LEFT, TOP = 300, 220, 62, 50
LEAST_US, MOST_US = 30.0, 300_000.0

Point = tuple[str, int, int]


def run() -> dict[str, float]:
    points = [(jobs, AT_GPUS) for jobs in JOBS] + [(AT_JOBS, gpus) for gpus in GPUS]
    times = {(p, *point): step_us(p, *point) for p in POLICIES for point in dict.fromkeys(points)}
    show(times)
    PICTURE.write_text(draw(times))
    return {
        "worst growth over n log n": max(
            _growth([times[p, n, AT_GPUS] for n in JOBS], JOBS) for p in ORDERS
        ),
        "worst growth over G log G": max(
            _growth([times[p, AT_JOBS, g] for g in GPUS], GPUS) for p in ORDERS
        ),
    }


def step_us(policy: str, jobs: int, gpus: int) -> float:
    """Median microseconds of a step with that many active jobs."""
    rng = np.random.default_rng(0)
    total = jobs + STEPS
    sizes = rng.choice([1, 1, 1, 2, 4, 8], total)
    lengths = rng.lognormal(7.0, 2.0, total)
    scheduler = Scheduler(
        build("policy", policy),
        parse_cluster(f"{gpus // 8}x8:v100"),
        knowledge=Knowledge(FixedPredictor(lengths)),
    )
    queue = [Job(JobId(f"j{i}"), demand=Demand(int(sizes[i]))) for i in range(total)]
    _settle(scheduler, 0.0, [Submitted(job) for job in queue[:jobs]])
    took = []
    for i in range(STEPS):
        now = 10.0 * (i + 1)
        events: list[Event] = [an_end(scheduler), Submitted(queue[jobs + i])]
        began = time.process_time_ns()
        _settle(scheduler, now, events)
        took.append(time.process_time_ns() - began)
    return statistics.median(took) / 1e3


def an_end(scheduler: Scheduler) -> Event:
    """The end of the first job that runs."""
    table = scheduler.state.table
    row = next(r for r, on in enumerate(table.allocations) if on is not None)
    return Finished(table.jobs[row].id, int(table.get(row, TableColumns.ATTEMPT)))


def _settle(scheduler: Scheduler, now: float, events: list[Event]) -> None:
    while events:
        events = [
            Started(a.job.id, a.attempt) if isinstance(a, Start) else Stopped(a.job, a.attempt)
            for a in scheduler.step(now, events)
            if hasattr(a, "job")
        ]


def _growth(took: list[float], sizes: tuple[int, ...]) -> float:
    """How much faster than n log n the time grows from the smallest size to any other."""

    def shape(n: int) -> float:
        return n * math.log(n)

    return max(
        (t / took[0]) / (shape(n) / shape(sizes[0]))
        for t, n in zip(took[1:], sizes[1:], strict=True)
    )


def show(times: dict[Point, float]) -> None:
    for policy in POLICIES:
        jobs = "  ".join(f"{n:,}: {times[policy, n, AT_GPUS]:,.0f}" for n in JOBS)
        gpus = "  ".join(f"{g:,}: {times[policy, AT_JOBS, g]:,.0f}" for g in GPUS)
        print(f"{policy}: us a step by active jobs ({AT_GPUS:,} GPUs) {jobs}")
        print(f"{' ' * len(policy)}  by GPUs ({AT_JOBS:,} active jobs) {gpus}")


def draw(times: dict[Point, float]) -> str:
    """Two panels in SVG, both axes logarithmic."""
    whole = 2 * (WIDTH + LEFT) + 110, HEIGHT + TOP + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole[0]}" height="{whole[1]}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="20" font-weight="bold">CPU time of a step in which a job ends and another '
        "arrives</text>",
    ]
    for at, (name, xs) in enumerate((("active jobs", JOBS), ("GPUs", GPUS))):
        left = LEFT + at * (WIDTH + LEFT)
        parts += _axes(left, name, xs)
        for policy, colour in zip(POLICIES, COLOURS, strict=True):
            keys = [(policy, x, AT_GPUS) if at == 0 else (policy, AT_JOBS, x) for x in xs]
            line = [(_x(left, xs, x), _y(times[k])) for x, k in zip(xs, keys, strict=True)]
            path = " ".join(f"{x:.0f},{y:.0f}" for x, y in line)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
            parts += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{colour}"/>' for x, y in line]
    for i, (policy, colour) in enumerate(zip(POLICIES, COLOURS, strict=True)):
        y = TOP + 20 * i
        parts.append(f'<text x="{whole[0] - 90}" y="{y + 10}" fill="{colour}">{policy}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(left: int, name: str, xs: tuple[int, ...]) -> list[str]:
    bottom, parts = TOP + HEIGHT, []
    for us, label in ((100.0, "0.1 ms"), (1e3, "1 ms"), (1e4, "10 ms"), (1e5, "100 ms")):
        y = _y(us)
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y}" y2="{y}" stroke="#e0e3e8"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{label}</text>')
    for x in xs:
        middle = f'x="{_x(left, xs, x):.0f}" text-anchor="middle"'
        parts.append(f'<text {middle} y="{bottom + 16}">{x:,}</text>')
    where = f'x="{left + WIDTH / 2}" y="{bottom + 36}" text-anchor="middle"'
    return [*parts, f'<text {where} fill="#5c6470">{name}</text>']


def _x(left: int, xs: tuple[int, ...], x: int) -> float:
    return left + WIDTH * math.log(x / xs[0]) / math.log(xs[-1] / xs[0])


def _y(us: float) -> float:
    part = math.log(max(us, LEAST_US) / LEAST_US) / math.log(MOST_US / LEAST_US)
    return round(TOP + HEIGHT * (1.0 - part), 1)
