"""Wire one simulation and run it; wire several and run them side by side."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TextIO

from weft.app.policy_file import PYTHON, build_policy, check_machines
from weft.app.simulate.bound import BoundedWorld, with_bounds
from weft.app.simulate.clusters import find_cluster
from weft.app.simulate.setup import DEFAULT_CLUSTER, Setup, read_resize, stop_rules
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import SHARED, world_of
from weft.core.codec.event_lines import event_line
from weft.core.errors import InvalidConfig
from weft.core.events.event import NodeUp, PolicyChanged
from weft.core.model.cluster import Cluster
from weft.core.model.gang_nodes import explain_too_few_nodes
from weft.core.model.trace import Trace
from weft.core.plan.about import terms_of
from weft.core.plan.policy import Policy
from weft.core.scheduler import Journal
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import names, read_spec
from weft.engines.ray.spread import spread
from weft.formulas.node_sleeper import NodeSleeper, SleepRule
from weft.plural import say_gpus
from weft.sim.result import Outcome, Result
from weft.sim.sweep import Progress, sweep
from weft.traces.options import DrawRequest, Options
from weft.traces.read import find, workload
from weft.version import __version__

Report = Callable[[float], None]
Run = Callable[[Setup, Report | None], Outcome]
DESCRIBED = (str, PartSpec, Mapping)


def run_all(
    setups: Sequence[Setup],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
    on: str = "",
    run: Run | None = None,
    bound: bool = False,
) -> Result:
    """Run every setup (same workload and cluster, any policies and seeds) into one result.

    `on` is the address of a Ray cluster that runs them; empty for this machine. `run` is what
    runs one of them here, where that is not `run_one`. `bound` adds what no schedule can beat.
    """
    first = setups[0]
    policies = [policy_of(setup) for setup in setups]  # a misspelt name is answered at once
    if first.pairs and not any(policy.about.controls & SHARED for policy in policies):
        raise InvalidConfig(
            f"--pairs {first.pairs}: no job shares a GPU under {first.policy_name}",
            hint="leave it out, or use a policy that shares, such as gandiva or weft:share=true",
        )
    trace, cluster = prepare(first)
    if on:
        outcomes = spread(run_one, [_travelling(s) for s in setups], on, progress=progress)
    else:
        shared = processes if all(isinstance(s.policy, DESCRIBED) for s in setups) else 1
        outcomes = _by_seed(run or run_one, setups, shared, progress)
    by_policy: dict[str, list[Outcome]] = {}
    for label, outcome in zip(labels(setups), outcomes, strict=True):
        by_policy.setdefault(label, []).append(outcome)
    result = Result(
        __version__,
        first.workload_name,
        first.cluster or cluster.name,
        tuple(dict.fromkeys(setup.seed for setup in setups)),
        {policy: tuple(done) for policy, done in by_policy.items()},
        {"gpus": cluster.gpus, "offered_load": trace.load(cluster.gpus)},
    )
    if not bound:
        return result
    sharing = {
        label
        for label, policy in zip(labels(setups), policies, strict=True)
        if policy.about.controls & SHARED
    }
    by_seed = {setup.seed: setup for setup in reversed(setups)}
    starts = all(policy.about.resume_s is None for policy in policies)  # else some are free
    worlds = [_world(by_seed[seed], starts=starts) for seed in result.seeds]
    return with_bounds(result, worlds, sharing)


def _world(setup: Setup, *, starts: bool) -> BoundedWorld:
    """The truth of a simulation, for its bound."""
    trace, cluster = prepare(setup)
    machines = Cluster((*cluster.nodes, *setup.loans.nodes), cluster.name)
    world = world_of(setup, trace, machines, policy_of(setup).about)
    return BoundedWorld(world, machines, max(setup.loans.speed, 1.0), starts)


def _by_seed(
    run: Run, setups: Sequence[Setup], processes: int | None, progress: Progress | None
) -> list[Outcome]:
    """Seed after seed, so that a process reads or draws few workloads; results as asked for."""
    order = sorted(range(len(setups)), key=lambda i: setups[i].seed)
    place = sorted(order, key=order.__getitem__)

    def shown(done: Sequence[float]) -> None:
        if progress is not None:
            progress([done[i] for i in place])

    with collect_rarely():  # results are many small values that stay
        outcomes = sweep(run, [setups[i] for i in order], processes=processes, progress=shown)
    return [outcomes[i] for i in place]


def labels(setups: Sequence[Setup]) -> list[str]:
    """The label of each policy: as typed, or by its name, or whole where names are shared."""
    variants: dict[str, set[str]] = {}
    for setup in setups:
        variants.setdefault(setup.policy_name, set()).add(repr(setup.policy))
    return [s.policy_name if len(variants[s.policy_name]) == 1 else repr(s.policy) for s in setups]


def run_one(setup: Setup, report: Report | None = None) -> Outcome:
    """Run one simulation from start to end."""
    with collect_rarely():
        return _run_one(setup, report)


def _run_one(setup: Setup, report: Report | None) -> Outcome:
    trace, cluster = prepare(setup)
    policy = policy_of(setup)
    check_machines(policy, cluster)
    with_loans = Cluster((*cluster.nodes, *setup.loans.nodes), cluster.name)
    world = world_of(setup, trace, with_loans, policy.about)
    with _journal(setup.events) as journal:
        if journal is not None:  # so that a reader of the log knows what was decided about
            journal(0.0, _describe(setup, policy))
            for node in cluster.nodes:
                journal(0.0, NodeUp(node))
        run = wire(
            world,
            cluster,
            policy,
            predictor=setup.predictor,
            seed=setup.seed,
            faults=setup.faults,
            checkpoint_s=setup.checkpoint_s,
            free_moves=setup.free_moves,
            journal=journal,
            progress=None if report is None else lambda done, of: report(done / of),
            weights=setup.weights,
            loans=setup.loans,
            live=read_resize(setup.resize),
            stops=stop_rules(setup.stops, cluster),
            sleeper=_sleeper(setup),
        )
        return run.outcome(setup.policy_name)


def _describe(setup: Setup, policy: Policy) -> PolicyChanged:
    """Return the event that names the policy in a log."""
    described = setup.policy
    if not isinstance(described, DESCRIBED) or PYTHON in str(described):
        return PolicyChanged(PartSpec(policy.about.name), terms=terms_of(policy.about))
    spec = read_spec("policy", described)
    bare = build_policy(replace(spec, wrappers=()))
    return PolicyChanged(spec, terms=terms_of(bare.about))


def _sleeper(setup: Setup) -> NodeSleeper | None:
    if setup.sleep_nodes is None:
        return None
    return NodeSleeper(SleepRule(spare=setup.sleep_nodes), setup.boot_s)


def _travelling(setup: Setup) -> Setup:
    """The setup for another machine: with the jobs of a file, which it may not have."""
    if isinstance(setup.workload, Trace) or setup.workload in names("trace"):
        return setup
    trace, _ = prepare(setup)
    return replace(setup, workload=trace, cluster=setup.cluster or trace.cluster)


def prepare(setup: Setup) -> tuple[Trace, Cluster]:
    """The jobs and the machines, checked against each other."""
    if isinstance(setup.workload, Trace):
        trace, cluster = setup.workload, find_cluster(setup.cluster or DEFAULT_CLUSTER)
    else:
        # A file is the same for every seed, unless some of its jobs are drawn.
        drawn = setup.options.sample is not None or setup.workload in names("trace")
        seed = setup.seed if drawn else 0
        trace, cluster = _load(
            setup.workload, setup.cluster, seed, setup.jobs, setup.load, setup.options
        )
    check_fits(trace, cluster)
    return trace, cluster


def policy_of(setup: Setup) -> Policy:
    """The policy that was asked for."""
    if not isinstance(setup.policy, DESCRIBED):
        return setup.policy
    return build_policy(setup.policy)


def check_fits(trace: Trace, cluster: Cluster) -> None:
    """Refuse a workload with a job that could never run."""
    if not trace.jobs:
        raise InvalidConfig(f"{trace.name}: there are no jobs", hint="a trace needs at least one")
    checked = set()
    for job, _ in trace:
        if job.demand in checked:
            continue
        checked.add(job.demand)
        wanted = job.demand.kinds or cluster.kinds
        room = max((cluster.gpus_by_kind.get(kind, 0) for kind in wanted), default=0)
        if job.demand.min > room:
            kinds = "/".join(wanted) if job.demand.kinds else "one kind"
            raise InvalidConfig(
                f"job {job.id!r} asks for {say_gpus(job.demand.min)} of {kinds}; "
                f"cluster {cluster.name!r} has at most {room}",
                hint="name a larger --cluster, or leave such jobs out with --max-gpus "
                f"{max(room, 1)}",
            )
        what, _ = explain_too_few_nodes(job.demand, cluster)
        if what:
            raise InvalidConfig(
                f"job {job.id!r} {what} in cluster {cluster.name!r}",
                hint="name a --cluster with more or larger nodes",
            )


@lru_cache(maxsize=2)
def _load(
    workload_name: str,
    cluster_text: str,
    seed: int,
    jobs: int | None,
    load: float | None,
    options: Options,
) -> tuple[Trace, Cluster]:
    """A workload and its cluster; kept, because the policies of a comparison share both."""
    if not workload_name:
        raise InvalidConfig("no workload was named", hint="`weft list trace` shows built-in ones")
    if workload_name not in names("trace"):
        if jobs is not None or load is not None:
            raise InvalidConfig(
                "--jobs and --load shape built-in workloads only",
                hint="for a file use --sample, --window or -o scale_arrivals=2",
            )
        trace = find(workload_name, options=replace(options, seed=seed))
        return trace, find_cluster(cluster_text or trace.cluster or DEFAULT_CLUSTER)
    if replace(options, max_gpus=None) != Options():
        raise InvalidConfig(
            f"{workload_name!r} is drawn, not read: only --max-gpus, --jobs and --load shape it",
            hint="--sample, --window and --trace-option are for files",
        )
    cluster = find_cluster(cluster_text or workload(workload_name).cluster)
    request = DrawRequest(
        seed=seed,
        jobs=jobs,
        load=load,
        gpus=cluster.gpus,
        max_gpus=min(options.max_gpus or cluster.gpus, max(cluster.gpus_by_kind.values())),
        kinds=cluster.kinds,
    )
    return find(workload_name, request), cluster


@contextmanager
def _journal(path: Path | None) -> Iterator[Journal | None]:
    """A sink for events that appears under its name only once it is whole."""
    if path is None:
        yield None
        return
    if path.is_dir():  # also `.` and `/`, which have no name
        raise InvalidConfig(f"cannot write events to {path}: it is a folder", hint="name a file")
    partial = path.with_name(path.name + ".partial")
    try:
        out: TextIO = partial.open("w", encoding="utf-8", buffering=io.DEFAULT_BUFFER_SIZE * 16)
    except OSError as error:
        raise InvalidConfig(f"cannot write events to {path}: {error.strerror}") from error
    with out:
        yield lambda at, event: _ignore(out.write(event_line(at, event) + "\n"))
    os.replace(partial, path)  # noqa: PTH105 - atomic on every platform


def _ignore(_: object) -> None:
    return None


# Garbage collection while a simulation runs: rarely, since it leaves next to no cycles behind.
#
# At Python's own pace it walks all jobs and runs again and again: 5 % of a long simulation.

RARELY = 100_000  # objects made and not freed before the youngest are looked through

_lock = Lock()
_running = 0
_before = gc.get_threshold()


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Until the last of those that overlap leaves; then as it was before the first."""
    global _before, _running
    with _lock:
        if _running == 0:
            _before = gc.get_threshold()
            gc.set_threshold(max(RARELY, _before[0]), *_before[1:])
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if _running == 0:
                gc.set_threshold(*_before)
