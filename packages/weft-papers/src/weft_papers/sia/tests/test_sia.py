"""The worked examples of Sia (SOSP 2023), its invariants, and runs on tables made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from tests.seeds import seeds

from weft.base.step_times import StepTime
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.learning import NothingLearnt
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, BatchRange, Config, Demand, Job, JobId, NodeId, Slice
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.state import State
from weft.core.state.table import JobTable, Rows
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.facts import MeasuredFacts
from weft.perf.goodput.tables import ModelTable
from weft.pieces.size.configs import valid_configs
from weft.predict.none import NoPredictor
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft_papers.sia.authors import AuthorsSia
from weft_papers.sia.policy import Sia, restart_factor

TWO_KINDS = parse_cluster("1x2:a+1x4:b")
CONFIGS = valid_configs(TWO_KINDS)
GOODPUTS = np.array([[1.0, 1.5, 1.5, 2.5, 3.5], [1.2, 2.1, 1.0, 1.9, 3.6]])
BEST = {"j0": Config("b", 1, 4), "j1": Config("a", 1, 2)}


@dataclass(frozen=True)
class Told(NothingLearnt):
    """Beliefs that repeat a matrix."""

    matrix: Floats
    restart: float = 30.0
    unit: float = 1.0

    def observe(self, job: Job, kind: str, report: Report) -> None: ...

    def forget(self, job: Job) -> None: ...

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        return np.ones((len(table), len(kinds)))

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        return self.matrix[: len(table)].copy()

    def blind_goodputs(
        self, table: JobTable, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        return np.ones((len(table), len(replicas)))

    def most_run(self, table: JobTable) -> Floats:
        return np.ones(len(table))

    def pairs(self, table: JobTable, kinds: Sequence[str], first: Rows, second: Rows) -> None:
        pass

    def restart_s(self, table: JobTable) -> Floats:
        return np.full(len(table), self.restart)

    def units(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        return np.full((len(table), len(kinds)), self.unit)


def seen(
    matrix: Floats,
    cluster: Cluster = TWO_KINDS,
    *,
    held: Mapping[int, Allocation] | None = None,
    now: float = 120.0,
    restoring: tuple[int, ...] = (),
    since: float = 0.0,
    demands: Sequence[Demand] = (),
) -> View:
    """A view of as many jobs as the matrix has rows, some of them running since they came."""
    state = State(cluster)
    for row in range(len(matrix)):
        demand = demands[row] if demands else Demand(1, 1, 64)
        state.fold(since, Submitted(Job(JobId(f"j{row}"), since, demand=demand)))
    running = {JobId(f"j{row}"): on for row, on in (held or {}).items()}
    state.fold(since, Decided(1, running))
    for row in held or {}:
        state.fold(since, Started(JobId(f"j{row}"), 1))
        if row not in restoring:
            state.fold(since, Reported(JobId(f"j{row}"), 1))
    return View(now, state.table, cluster, state.free, knowledge=Knowledge(beliefs=Told(matrix)))


def config_of(view: View, on: Allocation) -> Config:
    return Config(view.cluster.kind_of(on), len(on.slices), on.gpus)


def sizes(view: View, plan: Plan) -> dict[str, Config]:
    """What every job holds after a plan, as a size."""
    return {str(job): config_of(view, on) for job, on in view.after(plan).items()}


def on(node: str, *gpus: int) -> Allocation:
    return Allocation((Slice(NodeId(node), gpus),))


def weights(policy: Sia, view: View, held: Sequence[int]) -> Floats:
    worth = policy._worth(view, CONFIGS, np.array(held, dtype=float))
    return policy.penalty - worth if policy.p < 0 else worth + policy.penalty


def by_value(
    weight: Floats, *, largest: bool, penalty: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Every choice within capacity, best first."""
    room = {"a": 2, "b": 4}
    picks = []
    for pick in product(range(-1, len(CONFIGS)), repeat=len(weight)):
        taken = [CONFIGS[size] for size in pick if size >= 0]
        if all(sum(c.gpus for c in taken if c.kind == k) <= room[k] for k in room):
            worth = sum(weight[i, s] if s >= 0 else penalty for i, s in enumerate(pick))
            picks.append((round(float(worth), 6), pick))
    return sorted(picks, reverse=largest)


# ---- 9.1 the integer program


@pytest.mark.parametrize(
    ("p", "penalty", "objective", "runner_up"),
    [
        (1.0, -1.1, 5.6, 5.1),
        (0.5, -1.1, 3.32, 3.12),
        (-0.5, 1.1, 1.22, 1.32),
        (-1.0, 1.1, 0.77, 0.88),
    ],
)
def test_the_two_job_example(p: float, penalty: float, objective: float, runner_up: float) -> None:
    view = seen(GOODPUTS)
    policy = AuthorsSia(p, penalty)

    plan = policy.decide(view)

    assert sizes(view, plan) == BEST
    ranked = by_value(weights(policy, view, [-1, -1]), largest=p > 0, penalty=penalty)
    assert ranked[0][0] == pytest.approx(objective)
    assert ranked[1][0] == pytest.approx(runner_up)
    assert ranked[0][1] == (4, 1)


def test_weights_are_rounded_to_two_decimals() -> None:
    values = weights(AuthorsSia(), seen(GOODPUTS), [-1, -1])

    expected = [[1, 0.82, 0.82, 0.63, 0.53], [0.91, 0.69, 1, 0.73, 0.53]]
    assert values == pytest.approx(np.array(expected))


@pytest.mark.parametrize("since", [0.0, 5000.0])
def test_a_running_job_pays_for_every_size_but_its_own(since: float) -> None:
    # Age 120, restart 30: factor 0.8.
    view = seen(GOODPUTS, held={0: on("b-1", 0, 1)}, now=since + 120.0, since=since)
    policy = AuthorsSia()

    plan = policy.decide(view)

    values = weights(policy, view, [3, -1])
    assert values[0] == pytest.approx((1.12, 0.91, 0.91, 0.63, 0.60))
    ranked = by_value(values, largest=False, penalty=1.1)
    assert [value for value, _ in ranked[:2]] == pytest.approx([1.29, 1.32])
    assert sizes(view, plan) == BEST


def test_the_scale_of_goodput_does_not_matter() -> None:
    scaled = GOODPUTS * np.array([[7.0], [0.01]])

    assert sizes(seen(scaled), Sia().decide(seen(scaled))) == BEST


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("p", [-1.0, -0.5, 0.5, 1.0])
def test_a_decision_is_the_best_of_all(seed: int, p: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.round(rng.uniform(0.5, 4.0, (3, 5)), 1)
    matrix[rng.random(matrix.shape) < 0.15] = 0.0
    view, penalty = seen(matrix), 1.1 if p < 0 else -1.1
    policy = AuthorsSia(p, penalty)

    held = sizes(view, policy.decide(view))

    weight = weights(policy, view, [-1, -1, -1])
    best = by_value(weight, largest=p > 0, penalty=penalty)[0][0]
    pick = [CONFIGS.index(held[f"j{i}"]) if f"j{i}" in held else -1 for i in range(3)]
    value = sum(weight[i, s] if s >= 0 else penalty for i, s in enumerate(pick))
    assert value == pytest.approx(best, abs=1e-6)


def test_a_job_that_did_nothing_but_restart_stays_where_it_is() -> None:
    tempting = np.array([[1.0, 1.5, 100.0, 100.0, 100.0]])
    view = seen(tempting, held={0: on("a-0", 0)}, now=60.0)
    view.table.set(0, TableColumns.ATTEMPT, 3)
    view.table.set(0, TableColumns.REPORTED, 3)  # two restarts of 30 s in 60 s of life: factor 0

    plan = Sia().decide(view)

    assert not plan.changes


def test_a_job_of_one_size_is_worth_all_its_gpus() -> None:
    # On its slowest kind a job counts as the least GPUs that it takes, and twice that where it is
    # twice as fast: weights 4 ** -0.5 and 8 ** -0.5.
    rates, rigid = np.array([[0.0, 0.0, 0.0, 0.0, 3.0], [0.0, 1.0, 0.0, 2.0, 0.0]]), (4, 2)
    view = seen(rates, demands=[Demand(gpus) for gpus in rigid])

    values = weights(AuthorsSia(), view, [-1, -1])

    assert values[0, 4] == pytest.approx(0.5)
    assert values[1, [1, 3]] == pytest.approx([0.71, 0.5])


def test_a_gang_is_served_before_as_many_single_gpus() -> None:
    # Served, the gang is worth 1.1 - 4 ** -0.5 = 0.6, and four jobs of a GPU 4 * (1.1 - 1) = 0.4.
    cluster = parse_cluster("1x4:b")
    asked = [Demand(1)] * 4 + [Demand(4)]
    view = seen(np.full((5, 3), np.nan), cluster, demands=asked)

    held = sizes(view, Sia().decide(view))

    assert held == {"j4": Config("b", 1, 4)}


# ---- 9.2 and 9.3


def test_the_restart_factor() -> None:
    age, restarts = np.array([600.0, 600, 3600, 60, 20]), np.array([0.0, 3, 4, 2, 0])
    seconds = np.array([30.0, 30, 250, 30, 30])

    factor = restart_factor(age, restarts, seconds)

    assert factor == pytest.approx([0.952381, 0.809524, 0.675325, 0.0, 1.0], abs=1e-6)


@pytest.mark.parametrize(
    ("cluster", "sizes_by_kind"),
    [
        (
            "sia-hetero",
            {
                "t4": [1, 2, 4, 8, 12, 16, 20, 24],
                "rtx": [1, 2, 4, 8, 16, 24],
                "a100": [1, 2, 4, 8, 16],
            },
        ),
        ("sia-homo", {"t4": [1, 2, *range(4, 65, 4)]}),
    ],
)
def test_the_sizes_to_choose_from(cluster: str, sizes_by_kind: dict[str, list[int]]) -> None:
    configs = valid_configs(parse_cluster(cluster))

    by_kind = {kind: [c.gpus for c in configs if c.kind == kind] for kind in sizes_by_kind}
    assert by_kind == sizes_by_kind
    assert len(configs) == {"sia-hetero": 19, "sia-homo": 18}[cluster]
    assert all(c.gpus == c.nodes * parse_cluster(cluster).node_size(c.kind)
               for c in configs if c.nodes > 1)  # fmt: skip


def test_no_job_gets_more_than_the_most_it_may() -> None:
    configs = valid_configs(parse_cluster("sia-homo"), max_gpus=16)

    assert max(c.gpus for c in configs) == 16


@pytest.mark.parametrize(("p", "penalty"), [(0.0, 1.1), (-0.5, -1.1), (0.5, 1.1)])
def test_meaningless_parameters_are_refused(p: float, penalty: float) -> None:
    with pytest.raises(InvalidConfig, match="lambda"):
        Sia(p, penalty)
    Sia(-0.5, 0.1)  # any lambda above 0


# ---- pinned and unknown jobs


def test_a_restoring_job_keeps_what_it_has() -> None:
    where = {0: on("b-1", 0, 1)}
    on_a = np.array([GOODPUTS[0], [1.0, 5.0, 0.0, 0.0, 0.0]])
    first = seen(on_a, held={0: on("a-0", 0)}, restoring=(0,), now=29.0)

    free = seen(GOODPUTS, held=where)
    pinned = seen(GOODPUTS, held=where, restoring=(0,), now=29.0)
    silent = seen(GOODPUTS, held=where, restoring=(0,))  # a restart takes 30 s

    assert sizes(first, Sia().decide(first)) == dict.fromkeys(["j0", "j1"], Config("a", 1, 1))
    assert sizes(free, Sia().decide(free))["j0"] == Config("b", 1, 4)
    assert sizes(pinned, Sia().decide(pinned))["j0"] == Config("b", 1, 2)
    assert sizes(silent, Sia().decide(silent))["j0"] == Config("b", 1, 4)


def test_a_job_nothing_is_known_of_starts_with_its_smallest_size() -> None:
    view = seen(np.full((1, 5), np.nan))

    held = sizes(view, Sia().decide(view))

    assert held["j0"].gpus == 1


def test_nobody_waits_while_a_smallest_size_is_free() -> None:
    view = seen(np.full((6, 5), np.nan))

    held = sizes(view, Sia().decide(view))

    assert len(held) == 6


# ---- 9.5 whole runs


@dataclass(frozen=True)
class Law:
    """Speeds on one kind straight from the step-time model."""

    times_of: StepTime
    bootstrap: float
    node_gpus: int
    max_nodes: int
    min_local = 16
    max_local = 256
    unit = 1

    def times(self, placement: Sequence[int], local: float) -> tuple[float, float]:
        step = float(self.times_of.step(len(placement), sum(placement), local))
        return step, step - float(self.times_of.grad(local))

    def largest_local(self, placement: Sequence[int]) -> int:
        return self.max_local


def table(name: str, iterations: float, sync: float, restart: float) -> ModelTable:
    """A model of three epochs, twice as fast on an A100 as on a T4."""
    times = StepTime(0.05, 0.001, 3.0 * sync, 0.1 * sync, sync, 0.05 * sync, 2.0)
    fast = StepTime(*(0.5 * p for p in times))._replace(gamma=times.gamma)
    ends = iterations * np.array((0.3, 0.6, 1.0))
    stats = (((0.5, 2.0), (0.5, 2.0)),) * 3
    return ModelTable(
        name=name,
        init_batch=64,
        max_batch=2048,
        epochs=3,
        restart_s=restart,
        assumed_restart_s=30.0,
        slowdown=1.0,
        kinds={"t4": Law(times, 500.0, 4, 3), "a100": Law(fast, 1000.0, 8, 1)},
        batches=(64.0, 2048.0),
        ends=tuple(float(end) for end in ends),
        stats=stats,
    )


MODELS = {
    "short": table("short", 2_000.0, 0.005, 40.0),
    "long": table("long", 20_000.0, 0.03, 250.0),
}
CLUSTER = parse_cluster("3x4:t4+1x8:a100")


def drawn(count: int, seed: int) -> Trace:
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(150.0, count)).round()
    jobs = [
        Job(
            JobId(f"j{i}"),
            float(at[i]),
            Demand(1, 1, 16),
            model=str(rng.choice(("short", "long"), p=(0.7, 0.3))),
            batch=BatchRange(64, 2048, 256),
        )
        for i in range(count)
    ]
    return Trace("drawn", tuple((job, Truth(1000.0)) for job in jobs))


@dataclass
class Watched:
    """Sia with every decision checked against the paper's promises."""

    inner: Sia
    decisions: int = 0
    moves: int = 0
    ran: dict[str, int] = field(default_factory=dict)

    @property
    def about(self) -> About:
        return self.inner.about

    def decide(self, view: View) -> Plan:
        plan = self.inner.decide(view)
        held = view.after(plan)
        self.decisions += 1
        self._check_sizes(view, held)
        self._check_pinned(view, plan)
        self._check_waiting(view, held)
        self.moves += sum(1 for job in plan.changes if view.holds(job) is not None)
        return plan

    def _check_sizes(self, view: View, held: Mapping[JobId, Allocation]) -> None:
        allowed, most = valid_configs(view.cluster), view.believed().most_run(view.table)
        taken = dict.fromkeys(view.cluster.kinds, 0)
        for job, where in held.items():
            size = config_of(view, where)
            taken[size.kind] += size.gpus
            assert size in allowed
            assert size.gpus <= max(2 * most[view.table.row(job)], 1)
        assert all(taken[kind] <= view.cluster.gpus_by_kind[kind] for kind in taken)

    def _check_pinned(self, view: View, plan: Plan) -> None:
        restoring = view.restoring()
        for job, where in plan.changes.items():
            before = view.holds(job)
            if restoring[view.table.row(job)] and before is not None:
                # It may have to make room on its node, but keeps its size.
                assert where is not None
                assert config_of(view, where) == config_of(view, before)

    def _check_waiting(self, view: View, held: Mapping[JobId, Allocation]) -> None:
        if len(held) < len(view.table):
            assert sum(where.gpus for where in held.values()) == view.cluster.gpus


@pytest.mark.parametrize("policy", [Sia(), AuthorsSia()])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_whole_run_keeps_every_promise(seed: int, policy: Sia) -> None:
    trace, watched = drawn(30, seed), Watched(policy)
    physics = Physics(trace, Adaptive(MODELS))
    beliefs = FittedBeliefs(MeasuredFacts(MODELS))
    scheduler = Scheduler(watched, CLUSTER, knowledge=Knowledge(NoPredictor(), beliefs))

    Simulation(scheduler, physics, CLUSTER).run()

    assert watched.decisions > 50
    assert watched.moves > 10
    assert np.isfinite(physics.ended_at).all()
    span = float(physics.ended_at.max()) - trace.jobs[0][0].submitted
    assert physics.gpu_s.sum() <= CLUSTER.gpus * span
