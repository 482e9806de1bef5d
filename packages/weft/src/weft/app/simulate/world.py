"""The truth about speeds in a simulation, and what the scheduler believes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

from weft.app.simulate.setup import Setup, read_resize
from weft.core.knowledge.costs import ChangeCosts
from weft.core.knowledge.knowledge import Beliefs, BusSharing, Knowledge, Pooled, TrainingKnowledge
from weft.core.knowledge.plans import Plans
from weft.core.knowledge.predictor import Predictor
from weft.core.model.cluster import Cluster
from weft.core.model.job import Job
from weft.core.model.trace import Detail, Trace
from weft.core.paths import expand
from weft.core.plan.about import About, Assumes, Controls
from weft.core.protocols import Coupling, LinkSharing, PerfModel, Places
from weft.core.spec.registry import build
from weft.frozen import frozen
from weft.perf.change_costs import data_parallel
from weft.perf.goodput.adaptive import Adaptive, table_of
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.facts import MeasuredFacts
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.goodput.shipped import load_shipped_models
from weft.perf.goodput.tables import ModelTable, read_tables
from weft.perf.learnt_costs import assume_by_name
from weft.perf.linear import LinearBeliefs
from weft.perf.links.joined import COLOCATED, JoinedLinks, MeasuredBus, OutOfStep, read_bus
from weft.perf.network.in_phase import InPhase
from weft.perf.replay import Replay
from weft.perf.sharing.batching import find_batching, untuned
from weft.perf.sharing.colocation import Colocated, Host, no_sensitivity
from weft.perf.sharing.device_models import MeasuredPairs, Unordered, profile_of, unordered
from weft.perf.sharing.host import TABLES, ByModel
from weft.perf.sharing.host import load_shipped as shipped_sensitivities
from weft.perf.sharing.host import read_tables as read_sensitivities
from weft.perf.throughputs import ThroughputBeliefs, Throughputs, load_published, read_throughputs
from weft.perf.training.layered import InRegimes, Layered
from weft.perf.training.learner import Learner
from weft.sim.physics import Interruption

SHARED = Controls.SHARE | Controls.TIER | Controls.HOST


@frozen
class World:
    """The truth of a simulation, and what the scheduler believes of it before anything ran.

    `trace` is restricted to where its jobs can run. `together` is what happens to jobs that share
    devices, None where the policy lets none; `pairs` speeds of pairs that were measured;
    `interruption` is what every decision costs every running job, where that is counted;
    `training` what is learnt of workers, servers and losses, None where no job has any; `joined`
    what links do, None where the cluster or the jobs say nothing of any; `bus` measurements of
    jobs on one socket; `able` the jobs that can change devices as they train; `assumed_s` what
    starts are taken to cost before any was seen; `pooled` what all jobs of a model tell together,
    None where the policy does not ask; `plans` what is known about execution plans, None
    if no job has any.
    """

    trace: Trace
    perf: PerfModel
    beliefs: Beliefs
    together: Colocated | None = None
    training: TrainingKnowledge | None = None
    interruption: Interruption | None = None
    pairs: Throughputs | None = None
    joined: JoinedLinks | None = None
    bus: BusSharing | None = None
    able: Callable[[Job], bool] = data_parallel
    assumed_s: Callable[[Job], float] = assume_by_name
    pooled: Pooled | None = None
    plans: Plans | None = None

    @property
    def link_coupling(self) -> Coupling | None:
        """The effect of jobs on each other, by devices and by links."""
        return self.together if self.joined is None else self.joined

    @property
    def meeting_places(self) -> Places | None:
        """The places where jobs meet beside their devices."""
        return None if self.joined is None else self.joined.meeting_places

    def knowledge(self, predictor: Predictor, costs: ChangeCosts | None = None) -> Knowledge:
        """The knowledge of the scheduler when it begins."""
        return Knowledge(
            predictor,
            self.beliefs,
            self.together,
            self.training,
            self.bus,
            costs,
            self.pooled,
            plans=self.plans,
        )


def world_of(setup: Setup, trace: Trace, cluster: Cluster, about: About) -> World:
    """The truth that was named, or what is known about the models of the trace."""
    world = _world_of(setup, trace, cluster, about)
    if not cluster.joined:
        return world
    bus = _bus(setup)
    if bus is None and all(job.traffic is None for job, _ in trace):
        return world
    return replace(world, joined=JoinedLinks(cluster, world.together, _links(trace), bus), bus=bus)


def _links(trace: Trace) -> LinkSharing:
    """The sharing of network links: by jobs' phases in time where any job tells them."""
    in_phases = any(job.traffic is not None and job.traffic.phases for job, _ in trace)
    return InPhase() if in_phases else OutOfStep()


def _world_of(setup: Setup, trace: Trace, cluster: Cluster, about: About) -> World:
    shared = bool(about.controls & SHARED)
    if setup.perf:
        truth = build("perf", setup.perf)
        together = Colocated(
            truth.profile,
            contention=truth.contention,
            gaps=truth.gaps,
            sensitivity=_host(setup, cluster, about),
        )
        return World(
            truth.retimed(trace),
            truth,
            LinearBeliefs(),
            together if shared else None,
            interruption=truth.interruption,
        )
    known = _known(setup, trace, cluster, about)
    if not shared or known.training is not None:
        return known
    together = MeasuredPairs(
        profile_of,
        unordered(setup.sharing, setup.pairs),
        sensitivity=_host(setup, cluster, about),
        # Jobs that choose their own batch have it in their pace already.
        batching=find_batching if known.perf.steady else untuned,
        table=known.pairs,
    )
    return replace(known, together=together)


def build_replayed_world(trace: Trace, about: About) -> World:
    """Recorded work at speeds in proportion to GPUs: all that a log of real jobs tells."""
    shared = bool(about.controls & SHARED)
    together = Colocated(profile_of, Unordered()) if shared else None
    return World(trace, Replay(), LinearBeliefs(), together)


def _host(setup: Setup, cluster: Cluster, about: About) -> Host:
    """The effect of cores and memory, for policies that set them: measured tables, or the fits."""
    if Controls.HOST not in about.controls:
        return no_sensitivity
    folder = expand(setup.profiles)
    measured = (folder / TABLES).is_file()
    return ByModel.on(cluster, read_sensitivities(folder) if measured else shipped_sensitivities())


def _bus(setup: Setup) -> MeasuredBus | None:
    """The effect of jobs on a socket on each other, where the folder of tables tells."""
    folder = expand(setup.profiles)
    return read_bus(folder) if (folder / COLOCATED).is_file() else None


def _known(setup: Setup, trace: Trace, cluster: Cluster, about: About) -> World:
    """Measured tables if some were named; else shipped parameters for what they cover.

    A trace of models without measurements is taken at its recorded durations.
    """
    if trace.detail:
        truth: PerfModel = Layered(Replay(setup.restart_cost))
        if Detail.REGIMES in trace.detail:
            truth = InRegimes(truth)
        return World(trace, truth, LinearBeliefs(), training=Learner(cluster))
    names = frozenset(job.model for job, _ in trace)
    if setup.profiles.endswith((".json", ".csv")):
        path = expand(setup.profiles)
        table = read_throughputs(path, restart_cost=setup.restart_cost)
        return _by_throughput(table, trace, cluster)
    folder = expand(setup.profiles)
    others = any((folder / name).is_file() for name in (TABLES, COLOCATED))
    if setup.profiles and not others:
        return _adaptive(setup, _tables(setup.profiles, names, cluster.kinds), trace, about)
    if names <= load_shipped_models().keys() and _covers(names, cluster):
        return _adaptive(setup, load_shipped_models(), trace, about)
    table = replace(load_published(), restart_cost=setup.restart_cost)
    if table.covers(trace, cluster.kinds):
        return _by_throughput(table, trace, cluster)
    return World(trace, Replay(setup.restart_cost), LinearBeliefs())


def _adaptive(setup: Setup, models: Mapping[str, ModelTable], trace: Trace, about: About) -> World:
    tuned = Controls.COUNT not in about.controls
    cap, blind = Assumes.BATCH_CAP in about.assumes, Assumes.ONE_KIND in about.assumes
    truth = Adaptive(models, setup.restart_cost, tuned, blind)
    live = read_resize(setup.resize)
    facts = MeasuredFacts(models, cap, None if live is None else live.pause_of)
    able = partial(_data_parallel, models)
    pooled = PooledBeliefs(facts) if about.pools else None
    return World(
        trace,
        truth,
        FittedBeliefs(facts, early=blind),
        able=able,
        assumed_s=MeasuredFacts(models).restart_s,
        pooled=pooled,
    )


def _data_parallel(models: Mapping[str, ModelTable], job: Job) -> bool:
    return all(kind.unit == 1 for kind in table_of(models, job).kinds.values())


def _by_throughput(table: Throughputs, trace: Trace, cluster: Cluster) -> World:
    admitted = table.with_fitting_kinds(trace, cluster.kinds)
    return World(admitted, table, ThroughputBeliefs(table), pairs=table)


def _covers(names: frozenset[str], cluster: Cluster) -> bool:
    models = load_shipped_models()
    return all(kind in models[name].kinds for name in names for kind in cluster.kinds)


@lru_cache(maxsize=2)
def _tables(folder: str, models: frozenset[str], kinds: tuple[str, ...]) -> dict[str, ModelTable]:
    return read_tables(expand(folder), models, kinds)
