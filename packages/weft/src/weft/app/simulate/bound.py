"""Bounds of simulations: their jobs in all the ways in which the simulator would run them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from math import inf
from statistics import median

from weft.app.simulate.self_tuning import SelfTuning
from weft.app.simulate.world import World
from weft.bounds.average import BoundedJob, Option, bound_average, bound_slowdown, bound_wait
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job, NodeId, Slice
from weft.core.model.trace import Truth
from weft.formulas.metrics import BOUNDED, MINUTES_10, SHORT_WAIT, SLOWDOWN_10MIN, SLOWDOWN_10S
from weft.formulas.statistics import HOUR
from weft.frozen import frozen
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.replay import Replay
from weft.perf.throughputs import Throughputs
from weft.sim.result import Outcome, Result

NONE = (
    "no bound: jobs of this workload change their speed as they run (regimes, layers, losses), "
    "or --perf says how fast they are"
)


@frozen
class BoundedWorld:
    """The truth of a simulation and its machines.

    `faster` is how much faster than any other a machine can be. `starts` says that first starts
    take as long as the truth says, under every policy.
    """

    world: World
    machines: Cluster
    faster: float = 1.0
    starts: bool = True


def with_bounds(result: Result, worlds: Sequence[BoundedWorld], sharing: Collection[str]) -> Result:
    """The result with bounds, one of `worlds` a seed; policies of `sharing` have no ratio to them.

    Jobs that share a GPU can do more than its work together, which bounds do not count.
    """
    try:
        bounds = tuple(map(bound_world, worlds))
    except InvalidConfig as none:
        return replace(result, no_bound=none.what)
    outcomes = {
        policy: done if policy in sharing else _over(bounds, done)
        for policy, done in result.outcomes.items()
    }
    return replace(result, bounds=bounds, outcomes=outcomes)


def _over(
    bounds: Sequence[Mapping[str, float]], outcomes: tuple[Outcome, ...]
) -> tuple[Outcome, ...]:
    if any(outcome.metrics["failed"] for outcome in outcomes):
        return outcomes  # the average of other jobs than the bound's
    return tuple(
        replace(outcome, metrics={**outcome.metrics, BOUNDED: _ratio(bound, outcome)})
        for bound, outcome in zip(bounds, outcomes, strict=True)
    )


def _ratio(bound: Mapping[str, float], outcome: Outcome) -> float:
    least = bound["avg_jct_h"]
    return outcome.metrics["avg_jct_h"] / least if least > 0.0 else inf


def bound_world(about: BoundedWorld) -> dict[str, float]:
    """Bounds in hours by name, `avg_jct_h` the best; InvalidConfig says why there are none."""
    world = about.world
    if not isinstance(world.perf, Replay | Throughputs | Adaptive):
        raise InvalidConfig(NONE)
    gpus = about.machines.gpus_by_kind
    tuning = SelfTuning(world.perf.models, gpus) if isinstance(world.perf, Adaptive) else None
    if tuning is not None and about.faster > 1.0:
        raise InvalidConfig("no bound: jobs tune themselves, and loaned machines are faster")
    jobs = []
    for job, truth in world.trace:
        options = (
            tuple(_options(world, gpus, job, truth, about.faster))
            if tuning is None
            else tuning.options(job)
        )
        if not options:
            raise InvalidConfig(f"no bound: job {job.id!r} runs nowhere")
        start = world.perf.restart(job, first=True) if about.starts else 0.0
        jobs.append(BoundedJob(job.submitted, options, truth.length, start))
    bounds = asdict(bound_average(jobs, gpus))
    hours = {"avg_jct_h": bounds.pop("best") / HOUR}
    hours |= {f"{name}_jct_h": seconds / HOUR for name, seconds in bounds.items()}
    return hours | _felt(jobs, gpus)


def _felt(jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> dict[str, float]:
    """Bounds of waits and slowdowns, by the names of their metrics."""
    middle = median(job.length for job in jobs)
    short = [job for job in jobs if job.length < middle]
    return {
        "avg_queue_h": bound_wait(jobs, gpus) / HOUR,
        SHORT_WAIT: bound_wait(short, gpus) / HOUR if short else 0.0,
        SLOWDOWN_10S: bound_slowdown(jobs, gpus, 10.0),
        SLOWDOWN_10MIN: bound_slowdown(jobs, gpus, MINUTES_10),
    }


def _options(
    world: World, gpus: Mapping[str, int], job: Job, truth: Truth, faster: float
) -> Iterator[Option]:
    """All kinds and sizes that a job could run at, with the time that the simulator would take."""
    traffic = job.traffic if world.joined is not None else None
    for kind in job.demand.kinds or gpus:
        for size in range(job.demand.min, min(job.demand.max, gpus.get(kind, 0)) + 1):
            simulated = world.perf.simulate_job(job, truth)
            try:
                simulated.begin(_on(size), kind)
            except InvalidConfig:
                continue  # not measured: it could not run so
            rate = faster * simulated.pace(0.0, inf).rate
            if traffic is not None and size > 1 and traffic.sensitive:
                rate /= max(1.0 - traffic.share, 1e-9)  # links may be faster than the trace's
            if rate > 0.0:
                yield kind, size * job.demand.share, truth.length / rate


@lru_cache(maxsize=4096)
def _on(gpus: int) -> Allocation:
    return Allocation((Slice(NodeId(""), tuple(range(gpus))),))
