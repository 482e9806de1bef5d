"""Muri's published results, ours beside theirs.

    python -m weft_papers.muri.published [traces] [conserving] [ablations] [grouping]

`traces` runs every policy of the paper on every trace (an hour; name traces to run fewer, e.g.
`traces trace3 trace1`), `conserving` compares lock step with members at their own rates,
`ablations` shows what ordering, matching and the size of groups are worth, `grouping` times one
decision with ever more jobs. Without words: trace3 of all of them, some minutes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from benchmarks.data import need
from rich.console import Console
from rich.table import Table

from weft.app.simulate.run import run_one
from weft.app.simulate.setup import Setup
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.view import View
from weft.testing import view_of
from weft_papers.muri.policy import Muri
from weft_papers.published import find_authors_class

CLUSTER = "8x8:v100"
POLICIES = {
    "SRTF": "srtf",
    "SRSF": "srsf",
    "Tiresias": "las:thresholds=3250/7200",
    "AntMan": "authors/antman",
    "Muri-S": "muri",
    "Muri-L": "muri:known=false",
}
TRACES = [f"trace{i}{suffix}" for i in (1, 2, 3, 4) for suffix in ("", "_pr")]
BASELINES_WITHIN, MURI_WITHIN = 0.01, 0.03


class MuriRun(NamedTuple):
    """Completion times and CPU time of one simulation, in seconds."""

    average: float
    p99: float
    makespan: float
    cpu_s: float


def run(trace: Path, policy: str) -> MuriRun:
    """Run one simulation that counts as the authors' simulator does."""
    began = process_time()
    done = run_one(Setup(str(trace), find_authors_class(policy), CLUSTER, perf="muri"))
    hours = done.metrics
    return MuriRun(
        3600 * hours["avg_jct_h"],
        3600 * hours["p99_jct_h"],
        3600 * hours["makespan_h"],
        process_time() - began,
    )


def traces(data: Path, chosen: Sequence[str]) -> bool:
    """Every policy on every chosen trace; whether trace3 is as close as promised."""
    theirs = json.loads((data / "muri" / "published_results.json").read_text())["avg_jct"]
    table = _table("trace", "policy", "theirs, s", "ours, s", "differ", "CPU s")
    good = True
    for trace in chosen:
        for name, policy in POLICIES.items():
            ours = run(data / "muri" / "traces" / f"{trace}.csv", policy)
            off = ours.average / theirs[name][trace] - 1.0
            bound = MURI_WITHIN if name.startswith("Muri") else BASELINES_WITHIN
            promised = trace == "trace3" or bound == BASELINES_WITHIN
            wrong = promised and abs(off) > bound
            good &= not wrong
            table.add_row(
                trace,
                name,
                f"{theirs[name][trace]:,.0f}",
                f"{ours.average:,.0f}",
                f"{off:+.2%}" + (" OUTSIDE" if wrong else ""),
                f"{ours.cpu_s:.1f}",
            )
    Console().print(table)
    return good


def conserving(data: Path, chosen: Sequence[str]) -> bool:
    """Members at their own rates against one iteration each in a common period."""
    table = _table("trace", "policy", "lock step, s", "own rates, s", "average", "p99")
    good = True
    for trace in chosen:
        for name, known in (("Muri-S", "true"), ("Muri-L", "false")):
            path = data / "muri" / "traces" / f"{trace}.csv"
            step = run(path, f"muri:known={known}")
            own = run(path, f"muri:known={known},discipline=work-conserving")
            gain = own.average / step.average - 1.0
            good &= trace != "trace3" or gain <= -0.25
            table.add_row(
                trace,
                name,
                f"{step.average:,.0f}",
                f"{own.average:,.0f}",
                f"{gain:+.1%}",
                f"{own.p99 / step.p99 - 1.0:+.1%}",
            )
    Console().print(table)
    return good


def ablations(data: Path, chosen: Sequence[str]) -> bool:
    """Compare each variant with Muri-L, as a ratio."""
    variants = {
        "worst ordering": "muri:known=false,ordering=worst",
        "without matching": "muri:known=false,matching=false",
        "groups of at most 3": "muri:known=false,size=3",
        "groups of at most 2": "muri:known=false,size=2",
        "no groups": "muri:known=false,size=1",
    }
    table = _table("trace", "variant", "average, s", "over Muri-L")
    for trace in chosen:
        path = data / "muri" / "traces" / f"{trace}.csv"
        whole = run(path, "muri:known=false").average
        table.add_row(trace, "Muri-L", f"{whole:,.0f}", "1.00")
        for name, policy in variants.items():
            without = run(path, policy).average
            table.add_row(trace, name, f"{without:,.0f}", f"{without / whole:.2f}")
    Console().print(table)
    return True


def grouping(_: Path, __: Sequence[str]) -> bool:
    """One decision over waiting jobs of eight models on a cluster that seats a part of them."""
    table = _table("waiting jobs", "GPUs", "CPU s", "groups of four")
    good = True
    for jobs in (250, 500, 1000, 2000, 4000):
        view = _crowd(jobs)
        began = process_time()
        plan = Muri().decide(view)
        took = process_time() - began
        fours = sum(on is not None and on.sharing.share == 0.25 for on in plan.changes.values())
        good &= jobs != 2000 or took <= 2.0
        table.add_row(f"{jobs:,}", f"{view.cluster.gpus:,}", f"{took:.2f}", f"{fours // 4}")
    Console().print(table)
    return good


def _crowd(jobs: int) -> View:
    """Jobs of one GPU, four for each device: all are admitted and must be grouped."""
    rng = np.random.default_rng(0)
    stages = [tuple(rng.choice([0.5, 20, 60, 160, 400, 700], 3) / 1e3) for _ in range(8)]
    waiting = []
    for i in range(jobs):
        chosen = stages[int(rng.integers(8))]
        named = {f"stage{k}_s": float(s) for k, s in enumerate(chosen)}
        hints = {"iteration_s": sum(chosen), "duration_s": float(rng.lognormal(8, 2)), **named}
        waiting.append(Job(JobId(f"j{i}"), demand=Demand(1), hints=hints))
    return view_of(f"{max(jobs // 32, 1)}x8:v100", *waiting)


def _table(*columns: str) -> Table:
    table = Table()
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < 2 else "right")
    return table


PARTS: dict[str, Callable[[Path, Sequence[str]], bool]] = {
    "traces": traces,
    "conserving": conserving,
    "ablations": ablations,
    "grouping": grouping,
}


def main(words: Sequence[str]) -> int:
    """Run the parts that were named."""
    data = need("muri/traces", "muri/published_results.json")
    named = [word for word in words if word in TRACES]
    parts = [word for word in words if word in PARTS] or list(PARTS)
    default = ["trace3"] if not words or "traces" not in words else TRACES
    return 0 if all([*_results(data, parts, named or default)]) else 1


def _results(data: Path, parts: Sequence[str], chosen: Sequence[str]) -> Iterator[bool]:
    for part in parts:
        yield PARTS[part](data, chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
