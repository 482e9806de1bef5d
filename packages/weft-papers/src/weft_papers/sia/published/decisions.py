"""One whole Sia decision (goodput matrix, program, placement) at 64 to 2,048 GPUs, and at 16,384.

The gap is the largest of all decisions. The program is solved again through CVXPY with GLPK_MI,
as the authors do, on the same instances (if both are installed: `pip install 'weft[bench]'`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from weft.app.simulate.setup import Setup
from weft.app.simulate.world import world_of
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import JobId
from weft.core.model.trace import Trace
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.solve import multiple_choice as mc
from weft.solve.few_jobs import ChoiceProblem
from weft.traces.read import load
from weft_papers.sia import policy as sia
from weft_papers.sia.policy import Sia

SCALES = (1, 4, 16, 32)
PER_64 = (7, 35)
LARGE = 256, 10_000  # scale and jobs: 16,384 GPUs
UNTIL_S = 600.0


@dataclass
class ProgramWatch:
    """Records every program that is solved, and stops the run in time."""

    problems: list[tuple[ChoiceProblem, mc.Answer, float]] = field(default_factory=list)

    def choose(self, problem: ChoiceProblem, **how: Any) -> mc.Answer:
        """Solve, and remember what was solved and how long it took."""
        began = time.process_time()
        answer = mc.choose(problem, **how)
        self.problems.append((problem, answer, time.process_time() - began))
        return answer


def run(data: Path) -> int:
    heads = ("GPUs", "jobs", "decision ms", "program ms", "gap", "GLPK ms", "GLPK gap")
    print("{:>7} {:>6} {:>12} {:>11} {:>9} {:>9} {:>9}".format(*heads))
    cases = [(scale, per_64 * scale) for per_64 in PER_64 for scale in SCALES]
    for scale, jobs in (*cases, LARGE):
        row = measure(data, scale, jobs)
        print("{:>7,} {:>6,} {:>12.1f} {:>11.1f} {:>9.5f} {:>9.1f} {:>9.5f}".format(*row))
    return 0


def measure(data: Path, scale: int, jobs: int) -> tuple[float, ...]:
    cluster = parse_cluster(f"{6 * scale}x4:t4+{3 * scale}x8:rtx+{2 * scale}x8:a100")
    trace = crowd(data, scale, jobs)
    policy, watch = Sia(), ProgramWatch()
    setup = Setup(trace, policy, profiles=str(data / "profiles"))
    known = world_of(setup, trace, cluster, policy.about)
    physics = Physics(trace, known.perf)
    scheduler = Scheduler(policy, cluster, knowledge=Knowledge(beliefs=known.beliefs))
    driver = Simulation(scheduler, physics, cluster)
    spent: list[tuple[int, float]] = []
    scheduler.timed = _cpu_timer(spent)
    kept = mc.choose
    vars(sia)["choose"] = watch.choose
    try:
        _run_until(driver, UNTIL_S)
    finally:
        vars(sia)["choose"] = kept
    crowded = [t for active, t in spent if active >= 0.8 * jobs][2:] or [t for _, t in spent]
    problem, answer, _ = max(watch.problems, key=lambda p: len(p[0].value))
    large = [(a, t) for p, a, t in watch.problems if len(p.value) > jobs // 3]
    program, gap = statistics.median(t for _, t in large), max(a.gap for a, _ in large)
    small = (cluster.gpus, jobs) < (4096, 0)  # GLPK takes minutes beyond
    glpk_ms, glpk_gap = by_glpk(problem, answer.bound) if small else (np.nan, np.nan)
    return (
        cluster.gpus,
        jobs,
        1e3 * statistics.median(crowded),
        1e3 * program,
        gap,
        glpk_ms,
        glpk_gap,
    )


def crowd(data: Path, scale: int, jobs: int) -> Trace:
    """The first jobs of the scaled workload, all there from the start; again where it has fewer."""
    name = f"scale/scale_{min(scale, max(SCALES))}x" if scale > 1 else "saturn"
    whole = load(data / "workloads" / name / "workload-1.csv")
    pairs = []
    for i, (job, truth) in enumerate(islice(cycle(whole.jobs), jobs)):
        again = i // len(whole.jobs)
        name = JobId(f"{job.id}-{again}") if again else job.id
        pairs.append((replace(job, id=name, submitted=0.0), truth))
    return Trace(f"{jobs} jobs", tuple(pairs))


def _cpu_timer(spent: list[tuple[int, float]]) -> Callable[[Callable[[View], Plan], View], Plan]:
    def timed(decide: Callable[[View], Plan], view: View) -> Plan:
        began = time.process_time()
        plan = decide(view)
        spent.append((len(view.table), time.process_time() - began))
        return plan

    return timed


def _run_until(driver: Simulation, until: float) -> None:
    while driver._left:
        now = driver._next_time()
        if now > until:
            return
        driver._settle(now, driver._happening(now))


def by_glpk(problem: ChoiceProblem, bound: float) -> tuple[float, float]:
    """CPU milliseconds and gap of the authors' way: a CVXPY model given to GLPK_MI."""
    try:
        import cvxpy as cp
    except ImportError:
        return float("nan"), float("nan")
    began = time.process_time()
    rows, sizes = problem.value.shape
    x = cp.Variable((rows, sizes), boolean=True)
    value = np.where(np.isfinite(problem.value), problem.value, -100.0)
    limits = [cp.sum(x, axis=1) <= 1]
    for k, capacity in enumerate(problem.capacity):
        uses = np.where(problem.kind == k, problem.count, 0.0)
        limits.append(cp.sum(x @ uses) <= capacity)
    task = cp.Problem(cp.Maximize(cp.sum(cp.multiply(value, x))), limits)
    task.solve(solver=cp.GLPK_MI)
    took = time.process_time() - began
    return 1e3 * took, (bound - float(task.value)) / abs(bound)
