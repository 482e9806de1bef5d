"""The contract of a policy in executable form: run it on any policy.

Pure and deterministic; nothing promised twice; gangs whole, on kinds they accept and on as many
nodes as they ask for; the view left as it was; memory and plan survive JSON; empty cluster, empty
queue, one job, a thousand; every fitting job runs in the end, and no GPU is idle that a waiting or
growing job could use, or the policy says why not.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from weft.core.codec.plain_values import decode, encode
from weft.core.events.event import Decided, Event, Failed, Finished, NodeDown
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, BatchRange, Demand, Job, JobId, NodeId, Tier
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy, fast_start_of, may_rest
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.capacity import EPS
from weft.core.state.table import COLUMNS
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.perf.sharing.colocation import Colocated, Interfering, even_parts
from weft.perf.sharing.hinted_profile import profile_of
from weft.plural import say_gpus
from weft.predict.oracle import Oracle
from weft.sim.driver import Simulation
from weft.sim.faults import Faults
from weft.sim.physics import Physics
from weft.stack.layers import EligibleJobs
from weft.testing.build import view_of
from weft.testing.idle import find_idle


def reread(name: str, memory: object) -> object:
    """Memory after it has been saved and loaded."""
    if memory is None:
        return None
    kind = type(memory)
    assert is_dataclass(kind), f"{name} keeps {kind.__name__} as memory, not a dataclass"
    try:
        read = decode(kind, json.loads(json.dumps(encode(memory), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{name}'s memory does not survive JSON: {error}") from error
    read = _with_inner(name, memory, read)
    assert alike(memory, read), f"{name}'s memory does not survive JSON: {read} was {memory}"
    return read


def _with_inner(name: str, memory: Any, read: Any) -> Any:
    """Return the memory that was read, with those of inner policies read by their own types."""
    inner = {}
    for f in fields(memory):
        held = getattr(memory, f.name)
        if is_dataclass(held) and not isinstance(getattr(read, f.name), type(held)):
            inner[f.name] = reread(name, held)
        elif isinstance(held, Mapping) and any(map(is_dataclass, held.values())):
            inner[f.name] = {
                k: reread(name, v) if is_dataclass(v) else getattr(read, f.name)[k]
                for k, v in held.items()
            }
    return replace(read, **inner) if inner else read


def alike(value: Any, other: Any) -> bool:
    """Equality that looks into arrays, and minds types where JSON would blur them."""
    if isinstance(value, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(value, other, equal_nan=True)
    if is_dataclass(value):
        names = [f.name for f in fields(value)]
        return type(value) is type(other) and all(
            alike(getattr(value, name), getattr(other, name)) for name in names
        )
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(alike(value[k], other[k]) for k in value)
    if isinstance(value, (tuple, list)) and isinstance(other, (tuple, list)):
        pairs = zip(value, other, strict=False)
        return len(value) == len(other) and all(alike(a, b) for a, b in pairs)
    return bool(value == other) or (value != value and other != other)


STEPS = 20_000
IDLE = 5_000


def check_policy(
    policy: Policy, *, jobs: int = 40, seed: int = 0, interfering: Interfering = even_parts
) -> None:
    """Raise AssertionError, or PlanError, with the first promise that the policy breaks.

    `jobs` is how many come to each of the six clusters it is run on, `interfering` what those on
    the same devices do to each other.
    """
    check_about(policy)
    check_small_views(policy)
    rng = np.random.default_rng(seed)
    joined = "3x8:v100@dgx-1v/nic=50/rack=2:80"
    for text in ("1x1:v100", "2x4:v100", joined, "2x4:t4+1x8:a100"):
        cluster = parse_cluster(text)
        check_run(policy, cluster, _draw_jobs(rng, cluster, jobs), interfering=interfering)
    cluster = parse_cluster("4x4:v100")
    faults = Faults(node_mtbf_h=2.0, repair_h=0.5, job_mtbf_h=2.0)
    for more in ({"faults": faults}, {"checkpoint_s": 7.0}):
        drawn = _draw_jobs(rng, cluster, jobs)
        check_run(policy, cluster, drawn, interfering=interfering, **more)
    check_thousand(policy, rng)


def check_about(policy: Policy) -> None:
    """The policy is a frozen dataclass with a name."""
    assert is_dataclass(policy), f"{policy!r} is not a dataclass: parameters are fields"
    assert policy.__dataclass_params__.frozen, f"{policy!r} is not frozen"
    assert isinstance(policy.about, About), f"{policy!r}.about is not an About"
    assert policy.about.name, "a policy needs a name"


def check_small_views(policy: Policy) -> None:
    """Nothing to do is done without complaint; one job that fits is started or asked for later."""
    for view in (view_of(Cluster(())), view_of(Cluster(()), ("a", 1, 60.0)), view_of(8)):
        plan = policy.decide(view)
        assert not view.after(plan), f"{policy.about.name} gives GPUs that do not exist"
    view = view_of(8, ("a", 4, 60.0))
    plan = policy.decide(view)
    assert view.after(plan) or plan.wake_at, f"{policy.about.name} leaves a lone job waiting"


def check_thousand(policy: Policy, rng: np.random.Generator) -> None:
    """A long queue is no trouble, and the same view gives the same plan."""
    sizes = rng.choice([1, 2, 4, 8], 1000)
    lengths = rng.lognormal(6.0, 2.0, 1000)
    jobs = [
        (f"j{i}", int(g), float(s)) for i, (g, s) in enumerate(zip(sizes, lengths, strict=True))
    ]
    watched = WatchedPolicy(policy)
    view = view_of(64, *jobs)
    held = view.after(watched.decide(view))
    _check_claims(held)


def check_run(
    policy: Policy,
    cluster: Cluster,
    trace: Trace,
    *,
    faults: Faults | None = None,
    checkpoint_s: float = 0.0,
    seed: int = 0,
    interfering: Interfering = even_parts,
) -> list[tuple[float, Event]]:
    """Simulate a whole trace, watching every decision; return the log of events."""
    faults = faults or Faults()
    struck = faults.with_failures(trace, seed)
    together = Colocated(profile_of, interfering)
    physics = Physics(
        struck,
        Replay(5.0),
        checkpoint_s=checkpoint_s,
        checkpoint_every=60.0,
        coupling=together if policy.about.controls & (Controls.SHARE | Controls.TIER) else None,
    )
    log: list[tuple[float, Event]] = []

    def journal(now: float, event: Event) -> None:
        log.append((now, event))
        assert len(log) < STEPS * 10, f"{policy.about.name} never ends"

    watched = WatchedPolicy(policy)
    scheduler = Scheduler(
        EligibleJobs(watched),
        cluster,
        knowledge=Knowledge(Oracle(physics.remaining), LinearBeliefs(), together),
        seed=seed,
        journal=journal,
    )
    Simulation(scheduler, physics, cluster, faults=faults, seed=seed).run()
    check_log(log, cluster, struck)
    check_host(policy, log, cluster)
    done = np.isnan(physics.ended_at).sum() == 0
    assert done or policy.about.starves, f"{policy.about.name} starves jobs and does not say why"
    assert scheduler.state.free.room() == sum(n.gpus for n in scheduler.state.cluster.nodes)
    return log


def check_log(log: Sequence[tuple[float, Event]], cluster: Cluster, trace: Trace) -> None:
    """Read the decisions again, by other means: no device is promised beyond one whole job."""
    demand = {job.id: job.demand for job, _ in trace}
    needs_gb = {job.id: profile_of(job).mem_gb for job, _ in trace}
    device_gb = {node.id: node.device_gb for node in cluster.nodes}
    shy = {job.id for job, _ in trace if not job.shareable}
    kind = {node.id: node.kind for node in cluster.nodes}
    size = {node.id: node.gpus for node in cluster.nodes}
    held: dict[JobId, Allocation] = {}
    for _, event in log:
        if isinstance(event, Decided):
            for job, on in event.changes.items():
                held.pop(job, None)
                if on is None:
                    continue
                held[job] = on
                kinds = {kind[part.node] for part in on.slices}
                assert len(kinds) == 1, f"{job} is split over kinds {kinds}"
                assert not demand[job].kinds or kinds <= set(demand[job].kinds), f"{job} on {kinds}"
                assert demand[job].min <= on.gpus <= demand[job].max, (
                    f"{job} holds {say_gpus(on.gpus)}"
                )
                _check_nodes(job, demand[job].nodes, on)
                for part in on.slices:
                    assert all(0 <= gpu < size[part.node] for gpu in part.gpus)
            for job in event.rejected:
                held.pop(job, None)
            _check_claims(held)
            _check_memory(held, needs_gb, device_gb)
            _check_apart(held, shy)
        elif isinstance(event, (Finished, Failed)):
            held.pop(event.job, None)
        elif isinstance(event, NodeDown):
            lost = [j for j, on in held.items() if any(p.node == event.node for p in on.slices)]
            for job in lost:
                del held[job]


def _check_nodes(job: JobId, nodes: int, on: Allocation) -> None:
    """A gang that asks for a number of nodes has an equal part of each, and of no other."""
    parts = [len(part.gpus) for part in on.slices]
    assert not nodes or parts == [on.gpus // nodes] * nodes, f"{job} holds {parts} of {nodes} nodes"


def _check_claims(held: Mapping[JobId, Allocation]) -> None:
    claims: dict[tuple[str, int], float] = {}
    for job, on in held.items():
        if on.sharing.tier is Tier.OPPORTUNISTIC:
            continue
        for part in on.slices:
            for gpu in part.gpus:
                claim = claims[part.node, gpu] = (
                    claims.get((part.node, gpu), 0.0) + on.sharing.share
                )
                assert claim <= 1.0 + EPS, f"GPU {gpu} of {part.node} is promised twice, to {job}"


def _check_memory(
    held: Mapping[JobId, Allocation],
    needs_gb: Mapping[JobId, float],
    device_gb: Mapping[NodeId, float],
) -> None:
    """Jobs that share a device fit into its memory together, each with its cap or its peak."""
    used: dict[tuple[NodeId, int], list[float]] = {}
    for job, on in held.items():
        cap = on.sharing.gpu_mem_gb
        for part in on.slices:
            for gpu in part.gpus:
                used.setdefault((part.node, gpu), []).append(needs_gb[job] if cap is None else cap)
    for (node, gpu), peaks in used.items():
        fits = len(peaks) == 1 or sum(peaks) <= device_gb[node] + 1e-6
        assert fits, f"GPU {gpu} of {node} hosts jobs of {peaks} GB; it has {device_gb[node]}"


def _check_apart(held: Mapping[JobId, Allocation], shy: AbstractSet[JobId]) -> None:
    """No job is beside one whose submitter ruled that out."""
    residents: dict[tuple[NodeId, int], list[JobId]] = {}
    for job, on in held.items():
        for part in on.slices:
            for gpu in part.gpus:
                residents.setdefault((part.node, gpu), []).append(job)
    for (node, gpu), jobs in residents.items():
        alone = len(jobs) == 1 or shy.isdisjoint(jobs)
        assert alone, f"GPU {gpu} of {node} hosts {jobs}, one of which does not share"


def check_host(policy: Policy, log: Sequence[tuple[float, Event]], cluster: Cluster) -> None:
    """CPUs and memory come in proportion to GPUs, unless the policy says that it sets them."""
    if Controls.HOST in policy.about.controls:
        return
    nodes = {node.id: node for node in cluster.nodes}
    for _, event in log:
        for job, on in event.changes.items() if isinstance(event, Decided) else ():
            for part in () if on is None or on.sharing.tier is Tier.OPPORTUNISTIC else on.slices:
                node = nodes[part.node]
                share = len(part.gpus) * on.sharing.share / node.gpus if on else 0.0
                fair = np.isclose(
                    (part.cpus, part.mem_gb), (node.cpus * share, node.mem_gb * share)
                )
                assert fair.all(), (
                    f"{policy.about.name} sets the host part of {job} "
                    "without declaring Controls.HOST; use Free.slice"
                )


class WatchedPolicy:
    """A policy under observation: every decision is made twice, on a view that must not change.

    The second time by a copy that has never decided before, with memory that was saved and
    read again: whatever a policy keeps elsewhere makes a difference.
    """

    def __init__(self, inner: Policy) -> None:
        self.inner = inner
        self._fresh = copy.deepcopy(inner)
        self._idle = 0

    @property
    def about(self) -> About:
        return self.inner.about

    def decide(self, view: View) -> Plan:
        """Decide twice on the same view and compare; then check what came out."""
        name = self.about.name
        before = _fingerprint(view)
        mark = view.free.mark()
        plan = self.inner.decide(view)
        view.free.rollback(mark)
        assert _fingerprint(view) == before, f"{name} changes the view"
        _check_survives_json(name, plan)
        again = copy.deepcopy(self._fresh).decide(replace(view, memory=reread(name, view.memory)))
        view.free.rollback(mark)
        assert alike(plan, again), (
            f"{name} gives two plans for one view: it draws numbers that are not view.rng's, "
            "or keeps something outside Plan.memory"
        )
        self._check_busy(view, plan)
        if not self.about.idles and (idle := find_idle(view, plan, self.about.controls)):
            raise AssertionError(f"{name} leaves GPUs idle and does not say why: {idle}")
        if may_rest(self.inner) and view.table.held.all():
            rest = plan == Plan(memory=view.memory)
            assert rest, f"{name} says that it rests, but acts although every job holds devices"
        self._check_fast_start(view, plan)
        return plan

    def _check_fast_start(self, view: View, plan: Plan) -> None:
        table, fast_start = view.table, fast_start_of(self.inner)
        if fast_start is None or table.waiting != 1 or len(view.cluster.kinds) > 1:
            return
        row = int(table.waiting_rows()[0])
        answer = fast_start(table.jobs[row], view.free, view.now)
        if answer is not None and table.need[row] <= view.free.room():
            alike = replace(answer, memory=view.memory) == plan
            assert alike, f"{self.about.name} decides otherwise about a newcomer than `fast_start`"

    def _check_busy(self, view: View, plan: Plan) -> None:
        idle = len(view.table) and not plan.changes and not plan.rejected and not view.held()
        self._idle = self._idle + 1 if idle else 0
        assert self._idle < IDLE, (
            f"{self.about.name} starves {view.job(0).id} and does not say why: "
            f"nothing runs and nothing was started in {IDLE} decisions"
        )


def _check_survives_json(name: str, plan: Plan) -> None:
    reread(name, plan.memory)
    bare = replace(plan, memory=None)
    assert decode(Plan, encode(bare)) == bare, f"{name}'s plan does not survive JSON"


def _fingerprint(view: View) -> tuple[object, ...]:
    table = view.table
    return (
        view.now,
        tuple(job.id for job in table.jobs),
        tuple(table.allocations),
        tuple(table.column(which).tobytes() for which in COLUMNS.values()),
        view.history.tobytes(),
        json.dumps(encode(view.memory), default=repr),
        tuple(view.free.idle_by_kind()),
        view.free.room(),
    )


def _draw_jobs(rng: np.random.Generator, cluster: Cluster, count: int) -> Trace:
    """Jobs that fit: gangs, parts, elastic ones, constraints, and ties in time."""
    jobs, at = [], 0.0
    for i in range(count):
        at += float(rng.choice([0.0, 0.0, 20.0, 300.0]))
        kinds = () if rng.random() < 0.7 else (str(rng.choice(cluster.kinds)),)
        room = max(cluster.gpus_by_kind[kind] for kind in kinds or cluster.kinds)
        gpus = min(int(rng.choice([1, 1, 2, 4, 8])), room)
        dice, batch = rng.random(), None
        if dice < 0.15:
            demand = Demand(1, kinds=kinds, share=float(rng.choice([0.25, 0.5, 0.6])))
        elif dice < 0.3:
            demand = Demand(gpus, min=1, max=min(2 * gpus, room), kinds=kinds)
            batch = BatchRange(32, 1024, 256)
        elif dice < 0.45:
            demand = draw_on_nodes(rng, cluster, kinds)
        else:
            demand = Demand(gpus, kinds=kinds)
        job = Job(
            JobId(f"j{i}"),
            at,
            demand,
            tenant=str(rng.choice(["", "vision"])),
            model=str(rng.choice(["", "vgg16", "bert"])),
            batch=batch,
            priority=float(rng.integers(3)),
            tier=Tier.OPPORTUNISTIC if rng.random() < 0.2 else Tier.GUARANTEED,
            hints=_hints(rng) if demand.share == 1.0 else {},
            shareable=demand.share < 1.0 or rng.random() < 0.85,
        )
        jobs.append((job, Truth(float(np.ceil(rng.lognormal(5.0, 2.0))))))
    return Trace("drawn", tuple(jobs))


def draw_on_nodes(rng: np.random.Generator, cluster: Cluster, kinds: tuple[str, ...]) -> Demand:
    """A gang that asks for a number of nodes, and fits."""
    kind = str(rng.choice(kinds or cluster.kinds))
    sizes = sorted((node.gpus for node in cluster.nodes if node.kind == kind), reverse=True)
    nodes = int(rng.integers(1, min(len(sizes), 3) + 1))
    each = int(rng.choice([1, sizes[nodes - 1] // 2 or 1, sizes[nodes - 1]]))
    return Demand(nodes * each, kinds=kinds, nodes=nodes)


def _hints(rng: np.random.Generator) -> dict[str, float]:
    """Draw a job's hints: stages of an iteration, or its use of a GPU, or nothing."""
    dice, memory = rng.random(), {"gmem_mib": float(rng.choice([1000.0, 8000.0, 14000.0]))}
    if dice < 0.4:
        stages = rng.choice([0.01, 0.1, 0.5], 3)
        named = {f"stage{i}_s": float(seconds) for i, seconds in enumerate(stages)}
        return {"iteration_s": float(stages.sum()), **named, **memory}
    if dice < 0.7:
        used = rng.choice([10.0, 50.0, 90.0], 2)
        return {"gpu_util": float(used[0]), "gmem_util": float(used[1]), **memory}
    return {}
