"""Which truth about speeds a simulation has, and what the scheduler believes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from weft.app.simulate.setup import Setup
from weft.core.about import Controls
from weft.core.cluster import Cluster
from weft.core.knowledge import Beliefs, Training
from weft.core.policy import Policy
from weft.core.ports import PerfModel
from weft.core.registry import build
from weft.core.trace import Trace
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.facts import MeasuredFacts
from weft.perf.goodput.shipped import shipped_models
from weft.perf.goodput.tables import ModelTable, read_tables
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.perf.sharing.batching import batching_of, untuned
from weft.perf.sharing.colocation import Colocated, Host, insensitive
from weft.perf.sharing.device_models import MeasuredPairs, profile_of, unordered
from weft.perf.sharing.host import TABLES, ByModel
from weft.perf.sharing.host import read_tables as read_sensitivities
from weft.perf.sharing.host import shipped as shipped_sensitivities
from weft.perf.throughputs import (
    ThroughputBeliefs,
    Throughputs,
    published,
    read_throughputs,
)
from weft.perf.training.layered import Layered
from weft.perf.training.learner import Learner
from weft.sim.physics import Interruption

SHARED = Controls.SHARE | Controls.TIER | Controls.HOST


@dataclass(frozen=True, slots=True)
class Speeds:
    """The truth, what is believed of it, and the trace restricted to where its jobs can run.

    `together` is what happens to jobs that share devices, None where the policy lets none;
    `interruption` is what every decision costs every running job, where that is counted;
    `training` what is learnt of workers, servers and losses, None where no job has any.
    """

    perf: PerfModel
    beliefs: Beliefs
    trace: Trace
    together: Colocated | None = None
    interruption: Interruption | None = None
    training: Training | None = None


def speeds(setup: Setup, trace: Trace, cluster: Cluster, policy: Policy) -> Speeds:
    """The truth that was named, or what is known about the models of the trace."""
    shared = bool(policy.about.controls & SHARED)
    if setup.perf:
        truth = build("perf", setup.perf)
        trace = truth.retimed(trace)
        host = _host(setup, cluster, policy)
        together = Colocated(
            truth.profile, contention=truth.contention, gaps=truth.gaps, sensitivity=host
        )
        return Speeds(
            truth, LinearBeliefs(), trace, together if shared else None, truth.interruption
        )
    known = _known(setup, trace, cluster, policy)
    if not shared or known.training is not None:
        return known
    together = MeasuredPairs(
        profile_of,
        unordered(setup.sharing, setup.pairs),
        sensitivity=_host(setup, cluster, policy),
        # Jobs that choose their own batch have it in their pace already.
        batching=batching_of if known.perf.steady else untuned,
        table=known.perf if isinstance(known.perf, Throughputs) else None,
    )
    return replace(known, together=together)


def _host(setup: Setup, cluster: Cluster, policy: Policy) -> Host:
    """What cores and memory do, for policies that set them: measured tables, or the fits."""
    if Controls.HOST not in policy.about.controls:
        return insensitive
    folder = Path(setup.profiles).expanduser()
    measured = (folder / TABLES).is_file()
    return ByModel.on(cluster, read_sensitivities(folder) if measured else shipped_sensitivities())


def _known(setup: Setup, trace: Trace, cluster: Cluster, policy: Policy) -> Speeds:
    """Measured tables if some were named; else shipped parameters for what they cover.

    A trace of models that nobody measured is taken at its recorded durations.
    """
    if any("layer0_mb" in job.hints or truth.curve is not None for job, truth in trace):
        truth = Layered(Replay(setup.restart_cost))
        return Speeds(truth, LinearBeliefs(), trace, training=Learner(cluster))
    names = frozenset(job.model for job, _ in trace)
    if setup.profiles.endswith(".json"):
        path = Path(setup.profiles).expanduser()
        table = read_throughputs(path, restart_cost=setup.restart_cost)
        return _by_throughput(table, trace, cluster)
    if setup.profiles and not (Path(setup.profiles).expanduser() / TABLES).is_file():
        return _adaptive(setup, _tables(setup.profiles, names, cluster.kinds), trace, policy)
    if names <= shipped_models().keys() and _covered(names, cluster):
        return _adaptive(setup, shipped_models(), trace, policy)
    table = replace(published(), restart_cost=setup.restart_cost)
    if table.covers(trace, cluster.kinds):
        return _by_throughput(table, trace, cluster)
    return Speeds(Replay(setup.restart_cost), LinearBeliefs(), trace)


def _adaptive(
    setup: Setup, models: Mapping[str, ModelTable], trace: Trace, policy: Policy
) -> Speeds:
    tuned = Controls.COUNT not in policy.about.controls
    cap = bool(getattr(policy, "artifact", False))
    blind = bool(getattr(policy, "blind_jobs", False))
    truth = Adaptive(models, setup.restart_cost, tuned, blind)
    return Speeds(truth, FittedBeliefs(MeasuredFacts(models, cap), early=blind), trace)


def _by_throughput(table: Throughputs, trace: Trace, cluster: Cluster) -> Speeds:
    return Speeds(table, ThroughputBeliefs(table), table.admitting(trace, cluster.kinds))


def _covered(names: frozenset[str], cluster: Cluster) -> bool:
    models = shipped_models()
    return all(kind in models[name].kinds for name in names for kind in cluster.kinds)


@lru_cache(maxsize=2)
def _tables(folder: str, models: frozenset[str], kinds: tuple[str, ...]) -> dict[str, ModelTable]:
    return read_tables(Path(folder).expanduser(), models, kinds)
