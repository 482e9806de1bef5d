"""Execution plans chosen with GPUs: `python -m benchmarks.plans [--jobs 60]`.

`weft`, `rubick`, `arena` and `sia` on traces of Rubick and Arena, with what their authors measured
as the truth. Work counts at the speed it was done with, every restart costs the same whoever
decides, and all jobs run to their end. `sia` knows nothing of plans: its jobs run the one they were
submitted with, or the one that they find themselves, on GPUs where plain data parallelism fits into
memory if there are any. Every result goes through `weft verify`; ratios are to the first policy in
the same run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

from benchmarks.data import need
from benchmarks.plan_tables import KnownPlans, OwnPlans, PlanTable
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import World
from weft.core.model.cluster import Cluster
from weft.core.model.trace import Trace
from weft.core.spec.registry import build
from weft.report.verify import JobRun, Severity, SimRun, Stretch, verify
from weft.sim.result import Outcome
from weft_papers.arena.published import data as arena_data
from weft_papers.rubick.published import data as rubick_data

POLICIES = ("sia", "rubick", "arena", "weft")
PARTS = {"trace_pai": 20, "trace_venus": 2, "trace_philly": 1}  # one node in so many


@dataclass(frozen=True, slots=True)
class Case:
    """One trace on its cluster, with the truth and what policies without plans believe."""

    name: str
    trace: Trace
    cluster: Cluster
    table: PlanTable
    own: OwnPlans


def main() -> int:
    """Print completion times and makespans; fail where a result does not stand up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=60, help="the first of each trace; 0 for all")
    parser.add_argument("--traces", nargs="*", default=["naive", "trace-base", "trace_pai"])
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    args = parser.parse_args()
    data = need(*("arena" if "_" in name else "rubick" for name in args.traces))
    wrong = 0
    print(f"{'trace':14}{'policy':20}{'avg JCT h':>11}{'p99':>8}{'makespan h':>12}", end="")
    print(f"{'of first':>10}{'restarts':>10}{'done':>9}  verify")
    for case in read_cases(data, args.traces, args.jobs or None):
        first = 0.0
        outcomes = [(name, play(case, name)) for name in args.policies]
        findings = verify([run_of(name, case, outcome) for name, outcome in outcomes])
        for name, outcome in outcomes:
            metrics = outcome.metrics
            first = first or float(metrics["avg_jct_h"])
            bad = [
                finding
                for finding in findings
                if finding.level is Severity.WRONG and finding.run in (name, "")
            ]
            wrong += len(bad)
            print(
                f"{case.name:14}{name:20}{metrics['avg_jct_h']:11.3f}{metrics['p99_jct_h']:8.2f}"
                f"{metrics['makespan_h']:12.2f}{metrics['avg_jct_h'] / first:10.3f}"
                f"{metrics['restarts_per_job']:10.2f}{metrics['finished']:5.0f}/{metrics['jobs']:<4.0f}"
                f"{'; '.join(run.text for run in bad) or 'nothing wrong'}",
                flush=True,
            )
    print(f"{process_time():.0f} s of CPU time")
    return 1 if wrong else 0


def read_cases(data: Path, names: list[str], jobs: int | None) -> Iterator[Case]:
    """Traces by name: Rubick's have a dash, Arena's an underscore."""
    for name in names:
        if "_" in name:
            folder = data / "arena"
            trace = arena_data.read_trace(folder / f"{name}.csv", jobs)
            table = arena_data.read_table(folder)
            own = OwnPlans(table, arena_data.only_plain(folder))
            yield Case(name, trace, arena_data.cluster(PARTS[name]), table, own)
        else:
            folder = data / "rubick"
            trace = rubick_data.read_trace(folder / f"{name}.csv")
            trace = replace(trace, jobs=trace.jobs[:jobs])
            table = rubick_data.read_table(folder)
            yield Case(name, trace, rubick_data.cluster(), table, OwnPlans(table))


def play(case: Case, policy: str) -> Outcome:
    """What becomes of a trace; policies that choose no plans believe what they can use."""
    world = World(case.trace, case.table, case.own, plans=KnownPlans(case.table))
    return wire(world, case.cluster, build("policy", policy)).outcome(policy)


def run_of(name: str, case: Case, outcome: Outcome) -> SimRun:
    """A run as `weft verify` reads it."""
    jobs, held = outcome.per_job, outcome.per_job.held
    assert held is not None
    stretches: dict[int, list[Stretch]] = {}
    for row, start, end, gpus in zip(held.row, held.start, held.end, held.gpus, strict=True):
        stretches.setdefault(int(row), []).append(Stretch(float(start), float(end), float(gpus)))
    runs = {
        job: JobRun(
            float(jobs.submit_s[row]),
            None if jobs.end_s[row] != jobs.end_s[row] else float(jobs.end_s[row]),
            tuple(stretches.get(row, ())),
        )
        for row, job in enumerate(jobs.id)
    }
    seconds = 3600.0 * float(outcome.metrics["avg_jct_h"])
    finished = int(outcome.metrics["finished"])
    return SimRun(name, case.cluster.gpus, runs, seconds, finished)


if __name__ == "__main__":
    sys.exit(main())
