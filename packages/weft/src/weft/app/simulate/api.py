"""`weft.simulate` and `weft.compare`: the runs of the command line, from Python."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.app.simulate.finished_runs import KeptRuns
from weft.app.simulate.run import run_all
from weft.app.simulate.setup import Setup
from weft.core.errors import InvalidConfig
from weft.core.model.trace import Trace
from weft.core.paths import expand
from weft.core.plan.policy import Policy
from weft.core.spec.registry import Described
from weft.sim.result import Result
from weft.sim.sweep import Progress


def simulate(
    workload: str | Path | Trace,
    policy: Described | Policy = "las",
    cluster: str = "",
    *,
    seed: int = 0,
    progress: Progress | None = None,
    bound: bool = False,
    **more: Any,
) -> Result:
    """Replay a workload under one policy in virtual time.

    `workload` is a built-in name, a file of any known format, or a Trace; `policy` a name with
    parameters (`"las:by=time"`, or `{"name": "las", "params": {"by": "time"}}`) or your own
    object. The default is a published baseline; `weft serve` uses `weft`. `bound` adds what no
    schedule can beat. `more` are the other fields of `weft.app.simulate.setup.Setup`: predictor,
    jobs, load, restart_cost, faults, options, events.
    """
    setup = Setup(_name_workload(workload), policy, cluster, seed, **more)
    return run_all([setup], processes=1, progress=progress, bound=bound)


def compare(
    workload: str | Path | Trace,
    policies: Described | Policy | Sequence[Described | Policy],
    cluster: str = "",
    *,
    seeds: int | Iterable[int] = (0,),
    processes: int | None = 1,
    progress: Progress | None = None,
    keep: str | Path = "",
    bound: bool = False,
    **more: Any,
) -> Result:
    """Replay a workload under several policies, or one, and seeds; `seeds=3` are 0, 1 and 2.

    `keep` is a folder for runs that have ended: what is there is read, not run again. `bound` adds
    what no schedule can beat.

    `progress` gets the fraction done of each run; notebooks show a bar without it.
    More `processes` (None: one per core) need a script whose own work is under
    `if __name__ == "__main__":`, as for any Python program that starts processes.
    """
    chosen = _several(policies)
    if not chosen:
        raise InvalidConfig("there is no policy to compare", hint="`weft list policy` shows all")
    base = Setup(_name_workload(workload), chosen[0], cluster, **more)
    every = tuple(range(seeds) if isinstance(seeds, int) else seeds)
    if not every:
        raise InvalidConfig("there is no seed to simulate with", hint="seeds=3, or a list of them")
    setups = [replace(base, policy=p, seed=s) for p in chosen for s in every]
    shown = progress or (_show_bar() if "ipykernel" in sys.modules else None)
    run = KeptRuns(expand(keep)) if keep else None
    return run_all(setups, processes=processes, progress=shown, run=run, bound=bound)


def _show_bar() -> Progress:
    """A bar of the notebook for the progress of all runs, redrawn at each part in a hundred."""
    from IPython.display import ProgressBar

    bar, reached = ProgressBar(100), 0
    bar.display()

    def show(done: Sequence[float]) -> None:
        nonlocal reached
        part = int(100 * sum(done) / max(len(done), 1))
        if part > reached:
            bar.progress = reached = part

    return show


def _several(
    policies: Described | Policy | Sequence[Described | Policy],
) -> Sequence[Described | Policy]:
    """A list as it is; one policy, by name, fields or object, as a list of one."""
    if isinstance(policies, Sequence) and not isinstance(policies, str):
        return policies
    return [policies]


def _name_workload(workload: str | Path | Trace) -> str | Trace:
    return str(workload) if isinstance(workload, Path) else workload
