"""How long decisions take with sharing, as a ratio to those without it in the same run.

Jobs of one GPU, of the workloads whose pairs were measured on an H200: first all of them wait, then
those who were given devices run. The least CPU time of five decisions.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from weft.core.events.event import Decided, Started
from weft.core.model.job import Job, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered, load_shipped_pairs, profile_of
from weft.policies.weft.policy import Weft
from weft.testing.build import view_of, with_knowledge

CASES = (("2x4:h200", 16), ("32x8:h200", 400), ("256x8:h200", 224))
TIMES = 5


def run() -> int:
    """Print milliseconds with and without sharing, and their ratios."""
    print(f"{'cluster':<12}{'jobs':>5}  {'all wait, ms':>16}{'':>6}  {'most run, ms':>16}")
    for cluster, count in CASES:
        jobs = _draw(count)
        ours, alone = (_measure(cluster, jobs, Weft(share=share)) for share in (True, False))
        cells = [f"{a:>7.1f} /{b:>6.1f} {a / b:>6.1f}x" for a, b in zip(ours, alone, strict=True)]
        print(f"{cluster:<12}{count:>5}  " + "  ".join(cells), flush=True)
    return 0


def _draw(count: int) -> list[Job]:
    names = sorted({name for pair in load_shipped_pairs("mps").speeds for name in pair})
    rng = np.random.default_rng(0)
    jobs = []
    for i in range(count):
        model, _, batch = names[rng.integers(len(names))].partition(":")
        hints = {"batch": float(batch), "duration_s": float(rng.lognormal(7.0, 1.2))}
        jobs.append(Job(JobId(f"j{i}"), model=model, hints=hints))
    return jobs


def _measure(cluster: str, jobs: list[Job], policy: Weft) -> tuple[float, float]:
    """Milliseconds of a decision when all wait, and of the next one."""
    known = Colocated(profile_of, Unordered("mps"))
    view = with_knowledge(view_of(cluster, *jobs), colocation=known)
    first, plan = _time(policy, view)
    second, _ = _time(policy, _follow(view, plan))
    return first, second


def _time(policy: Weft, view: View) -> tuple[float, Plan]:
    taken = []
    for _ in range(TIMES):
        began = time.process_time()
        plan = policy.decide(view)
        taken.append(1e3 * (time.process_time() - began))
    return min(taken), plan


def _follow(view: View, plan: Plan) -> View:
    """A minute later, when those who were given devices run."""
    state = State(view.cluster)
    state.table = view.table
    state.fold(0.0, Decided(1, dict(plan.changes), {}, plan.wake_at))
    for row, on in enumerate(state.table.allocations):
        if on is not None:
            state.fold(0.0, Started(view.job(row).id, 1))
    return replace(view, free=state.free, memory=plan.memory, now=60.0)
