"""CPU time of one step (fold, decide, check, act) against active jobs and GPUs.

Each point: a cluster with that many active jobs, then steps in which one job ends and another
arrives. Writes a plot to out/decision_scaling.html.
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
from weft.core.state.table import Column
from weft.testing.build import Told

POLICIES = ("fifo:backfill=true", "srtf", "tiresias")
JOBS = (100, 300, 1000, 3000, 10_000)
GPUS = (64, 512, 4096, 16_384)
STEPS = 60
OUT = Path("out") / "decision_scaling.html"


def run() -> dict[str, float]:
    found = {
        (policy, jobs, gpus): step_us(policy, jobs, gpus)
        for policy in POLICIES
        for jobs in JOBS
        for gpus in GPUS
    }
    show(found)
    plot(found)
    return {
        "worst growth over n log n": max(
            _growth([found[p, n, g] for n in JOBS], JOBS) for p in POLICIES for g in GPUS
        ),
        "worst growth over G log G": max(
            _growth([found[p, n, g] for g in GPUS], GPUS) for p in POLICIES for n in JOBS
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
        knowledge=Knowledge(Told(lengths)),
    )
    queue = [Job(JobId(f"j{i}"), demand=Demand(int(sizes[i]))) for i in range(total)]
    _settle(scheduler, 0.0, [Submitted(job) for job in queue[:jobs]])
    took = []
    for i in range(STEPS):
        now = 10.0 * (i + 1)
        events: list[Event] = [_an_end(scheduler), Submitted(queue[jobs + i])]
        began = time.process_time_ns()
        _settle(scheduler, now, events)
        took.append(time.process_time_ns() - began)
    return statistics.median(took) / 1e3


def _an_end(scheduler: Scheduler) -> Event:
    table = scheduler.state.table
    row = next(r for r, on in enumerate(table.allocations) if on is not None)
    return Finished(table.jobs[row].id, int(table.get(row, Column.ATTEMPT)))


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


def show(found: dict[tuple[str, int, int], float]) -> None:
    for policy in POLICIES:
        print(f"{policy}: microseconds a step; active jobs down, GPUs across")
        print(" " * 8 + "".join(f"{gpus:>10,}" for gpus in GPUS))
        for jobs in JOBS:
            cells = "".join(f"{found[policy, jobs, gpus]:>10.0f}" for gpus in GPUS)
            print(f"{jobs:>8,}{cells}")


def plot(found: dict[tuple[str, int, int], float]) -> None:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(
        1, len(POLICIES), shared_yaxes=True, subplot_titles=POLICIES, x_title="active jobs"
    )
    for column, policy in enumerate(POLICIES, 1):
        for gpus, colour in zip(GPUS, ("#56b4e9", "#009e73", "#e69f00", "#d55e00"), strict=True):
            y = [found[policy, n, gpus] / 1e3 for n in JOBS]
            line = go.Scatter(
                x=JOBS,
                y=y,
                name=f"{gpus:,} GPUs",
                mode="lines+markers",
                line={"color": colour},
                legendgroup=str(gpus),
                showlegend=column == 1,
            )
            figure.add_trace(line, 1, column)
        base = found[policy, JOBS[0], GPUS[0]] / 1e3
        shape = [base * n * math.log(n) / (JOBS[0] * math.log(JOBS[0])) for n in JOBS]
        figure.add_trace(
            go.Scatter(
                x=JOBS,
                y=shape,
                name="n log n",
                line={"color": "#999", "dash": "dot"},
                showlegend=column == 1,
            ),
            1,
            column,
        )
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    figure.update_yaxes(title="CPU ms a step", col=1)
    figure.update_layout(template="plotly_white", width=1100, height=420)
    OUT.parent.mkdir(exist_ok=True)
    figure.write_html(OUT, include_plotlyjs=True)
    print(f"plot: {OUT}")
