"""The worked examples of Gavel (OSDI 2020), its invariants and its published runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cheap import check_contract

from weft import compare, simulate
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Event, Started, Submitted, Woken
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.perf.linear import LinearBeliefs
from weft.perf.throughputs import ThroughputBeliefs, Throughputs, load_published, read_throughputs
from weft.predict.none import NoPredictor
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.testing import view_of
from weft.testing.build import with_knowledge
from weft.traces.read import find
from weft_papers.gavel.accounts import UnitAccounts, reset
from weft_papers.gavel.authors import (
    AuthorsGavel,
    bisect_makespan,
    cheapest_sum,
    greedy_fifo,
    random_fifo,
)
from weft_papers.gavel.objectives import (
    OBJECTIVES,
    cheapest,
    compute_isolated,
    finish_time_fairness,
    hierarchical,
    in_order,
    makespan,
    max_min_fairness,
    max_sum_throughput,
    minimise_value,
    normal,
    with_deadlines,
)
from weft_papers.gavel.policy import Gavel, Objective
from weft_papers.gavel.problem import (
    AllocationProblem,
    Program,
    SharedPairs,
    Solution,
    greatest_sum,
)
from weft_papers.published import find_authors_class

THREE = ((40.0, 20.0, 10.0), (12.0, 8.0, 4.0), (100.0, 50.0, 10.0))
TWO = ((4.0, 1.0), (2.0, 1.0))
NAMES = ("v100", "p100", "k80")


def problem(rates: object, gpus: object, **columns: object) -> AllocationProblem:
    as_floats: dict[str, Any] = {n: np.array(c, dtype=float) for n, c in columns.items()}
    return AllocationProblem(np.array(rates, dtype=float), np.array(gpus, dtype=float), **as_floats)


# ---- the linear programs


def test_e1_max_min_fairness_on_three_kinds() -> None:
    three = problem(THREE, (1, 1, 1))

    solution = max_min_fairness(three)

    assert normal(three) == pytest.approx((23.33333, 8.0, 53.33333))
    assert solution.value == pytest.approx(1.0298507)
    assert solution.throughput(three) == pytest.approx((24.02985, 8.23881, 54.92537))
    assert max_min_fairness(problem(np.ones((3, 3)), (1, 1, 1))).value == pytest.approx(1.0)


def test_e2_and_e3_weights_divide_the_normalised_throughput() -> None:
    weighted = problem(TWO, (1, 1), weights=(2, 1))

    solution = max_min_fairness(weighted)

    assert max_min_fairness(problem(TWO, (1, 1))).value == pytest.approx(1.0)
    assert solution.value == pytest.approx(0.7368421)
    assert solution.throughput(weighted) == pytest.approx((3.684211, 1.105263))
    expected = [(0.894737, 0.105263), (0.105263, 0.894737)]
    assert solution.alone == pytest.approx(np.array(expected), abs=1e-6)


def test_e4_fairness_is_in_gpu_time() -> None:
    gangs = problem([[10], [10], [10]], [2], gangs=(2, 1, 1))

    solution = max_min_fairness(gangs)

    assert solution.value == pytest.approx(2 / 3)
    assert solution.alone[:, 0] == pytest.approx((1 / 3, 2 / 3, 2 / 3))


def test_e5_makespan_is_one_linear_program() -> None:
    solution = makespan(problem(TWO, (1, 1), steps=(400, 400)))

    assert solution.value == pytest.approx(228.5714)
    assert solution.alone == pytest.approx(np.array([(0.25, 0.75), (0.75, 0.25)]))
    long = problem(THREE, (1, 1, 1), steps=(36000, 14400, 90000))
    assert makespan(long).value == pytest.approx(1643.478)


def test_e6_finish_time_fairness() -> None:
    fresh = problem(TWO, (1, 1), steps=(3600, 3600), elapsed=(0, 0))
    alone = compute_isolated(fresh)
    late = replace(fresh, elapsed=np.array((1000.0, 0.0)), ideal=3600 / alone + (500, 0))

    solution = finish_time_fairness(late)

    assert alone == pytest.approx((2.5, 1.5))
    first = finish_time_fairness(replace(fresh, ideal=3600 / alone))
    assert first.value == pytest.approx(1.0, abs=1e-6)
    assert solution.value == pytest.approx(1.1302286, abs=1e-6)
    expected = [(0.672835, 0.327165), (0.327165, 0.672835)]
    assert solution.alone == pytest.approx(np.array(expected), abs=1e-5)


def test_e7_throughput_cost_and_deadlines() -> None:
    two, prices = problem(TWO, (1, 1)), np.array((3.0, 1.0))
    urgent = replace(two, steps=np.array((0.0, 1.5)), within=np.array((np.inf, 1.0)))

    most, cheap = max_sum_throughput(two), cheapest_sum(two, prices)
    in_time = cheapest_sum(urgent, prices)

    assert most.value == pytest.approx(5.0)
    assert most.alone == pytest.approx(np.eye(2))
    assert cheap.value == pytest.approx(7 / 3)
    assert cheap.alone == pytest.approx(np.eye(2))
    assert in_time.value == pytest.approx(2.0)
    assert in_time.alone == pytest.approx(np.full((2, 2), 0.5))


def test_the_paper_s_cost_is_a_ratio() -> None:
    two = problem(TWO, (1, 1))

    solution = cheapest(two, np.array((3.0, 1.0)))

    assert solution.value == pytest.approx(4 / 3)  # job 0 alone: 4 steps for 3 dollars
    assert solution.alone == pytest.approx(np.array([(1.0, 0.0), (0.0, 0.0)]))

    urgent = replace(two, steps=np.array((0.0, 1.5)), within=np.array((np.inf, 1.0)))
    in_time = cheapest(urgent, np.array((3.0, 1.0)))
    assert in_time.value == pytest.approx(1.0)  # 1.5 steps in time for 2 dollars, and 2.5 for 2
    assert in_time.alone == pytest.approx(np.full((2, 2), 0.5))

    late = replace(two, steps=np.array((100.0, 0.0)), within=np.array((1.0, np.inf)))
    assert cheapest(late, np.array((3.0, 1.0))).value == pytest.approx(4 / 3)


def test_what_was_owed_under_the_old_shares_becomes_deficit() -> None:
    old = UnitAccounts(
        ("x", "y"),
        (("a",), ("b",)),
        share=np.array([(0.5, 0.0), (0.5, 1.0)]),
        received=np.array([(10.0, 5.0), (90.0, 95.0)]),
        deficit=np.array([(1.0, 2.0), (0.0, 0.0)]),
        total=np.array((100.0, 100.0)),
        reset_at=100.0,
    )
    two = problem(TWO, (1, 1))

    new = reset(old, two, replace(max_min_fairness(two), alone=np.eye(2)), 200.0, credit=5.0)
    kept = reset(old, two, max_min_fairness(two), 200.0, credit=5.0, forget=False)

    # 100 s at the old shares, less what was received beyond the credit.
    assert new.deficit.tolist() == [[46.0, 2.0], [-35.0, 10.0]]
    assert new.share.tolist() == np.eye(2).tolist()
    assert new.received.tolist() == [[5.0, 5.0]] * 2
    assert new.total.tolist() == [10.0, 10.0]
    assert kept.received.tolist() == old.received.tolist()
    assert kept.total.tolist() == [100.0, 100.0]
    assert new.reset_at == 200.0


def test_impossible_deadlines_are_dropped_together() -> None:
    steps, within = np.array((100.0, 0.0)), np.array((1.0, np.inf))

    solution = with_deadlines(replace(problem(TWO, (1, 1)), steps=steps, within=within))

    assert solution.value == pytest.approx(5.0)


def test_e8_water_filling_goes_on_rising() -> None:
    three = problem([(4, 1), (4, 1), (0, 1)], (2, 1), tenant=(0, 0, 0), rank=(0, 1, 2))

    solution = hierarchical(three, {}, set())

    assert max_min_fairness(three).value == pytest.approx(4 / 3)
    levels = solution.throughput(three) / normal(three)
    assert levels == pytest.approx((4 / 3, 4 / 3, 3.0))


@pytest.mark.parametrize(
    ("in_turn", "expected"),
    [(set(), (0.5, 0.5, 2 / 3, 2 / 3, 2 / 3)), ({1}, (0.5, 0.5, 1.0, 1.0, 0.0))],
)
def test_e9_tenants_share_by_weight(in_turn: set[int], expected: tuple[float, ...]) -> None:
    five = problem([[1]] * 5, [3], tenant=(0, 0, 1, 1, 1), rank=range(5))

    solution = hierarchical(five, {0: 1.0, 1: 2.0}, in_turn)

    assert solution.throughput(five) == pytest.approx(expected)


def test_e10_pairs_on_one_device() -> None:
    pair = SharedPairs(np.array([0]), np.array([1]), np.array([[[3.2, 1.5]]]))
    paired = replace(problem([[4], [2]], [1], model=(0, 1)), pairs=pair)

    solution = max_min_fairness(paired)

    assert solution.value == pytest.approx(0.7619048)
    assert solution.paired[0, 0] == pytest.approx(0.952381)
    assert solution.alone[:, 0] == pytest.approx((0.0, 0.047619), abs=1e-6)


def test_e10_pairs_on_two_kinds() -> None:
    pair = SharedPairs(np.array([0]), np.array([1]), np.array([[[3.2, 1.5], [0.6, 0.5]]]))
    two = replace(problem(TWO, (1, 1), model=(0, 1)), pairs=pair)

    solution = max_min_fairness(two)

    assert solution.value == pytest.approx(1.0769231)
    assert solution.paired == pytest.approx(np.array([(0.7692308, 0.0)]), abs=1e-6)
    expected = [(0.0, 0.2307692), (0.2307692, 0.0)]
    assert solution.alone == pytest.approx(np.array(expected), abs=1e-6)


def test_first_come_first_served_in_code_and_paper() -> None:
    queue = problem([(4, 1), (2, 1), (9, 3)], (1, 1), rank=range(3))

    code, paper = greedy_fifo(queue), in_order(queue)

    assert code.alone.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert paper.alone == pytest.approx(np.array([(1, 0), (0, 1), (0, 0)]), abs=1e-6)


# ---- what holds for every problem

rates = st.floats(0.1, 100.0)
problems = st.integers(1, 6).flatmap(
    lambda jobs: st.builds(
        lambda rows, gpus, gangs, weights: problem(rows, gpus, gangs=gangs, weights=weights),
        st.lists(st.tuples(rates, rates, rates), min_size=jobs, max_size=jobs),
        st.tuples(*[st.integers(2, 6)] * 3),
        st.lists(st.sampled_from((1, 2)), min_size=jobs, max_size=jobs),
        st.lists(st.sampled_from((1.0, 5.0)), min_size=jobs, max_size=jobs),
    )
)


def check_feasible(drawn: AllocationProblem, solution: Solution) -> None:
    used = (drawn.gangs[:, None] * solution.alone).sum(axis=0)
    assert (solution.alone >= -1e-9).all()
    assert (solution.alone.sum(axis=1) <= 1 + 1e-6).all()
    assert (used <= drawn.gpus + 1e-6).all()


@given(problems)
def test_every_objective_is_feasible(drawn: AllocationProblem) -> None:
    jobs = len(drawn)
    steps = np.arange(1.0, jobs + 1.0) * 100
    whole = replace(
        drawn,
        steps=steps,
        elapsed=np.zeros(jobs),
        ideal=steps / compute_isolated(drawn),
        rank=np.arange(jobs, dtype=float),
        tenant=np.arange(jobs, dtype=float) % 2,
    )

    for objective in OBJECTIVES.values():
        check_feasible(whole, objective(whole))
    check_feasible(whole, hierarchical(whole, {0: 2.0}, {1}))
    check_feasible(whole, cheapest(whole, np.array((3.0, 2.0, 1.0))))
    check_feasible(whole, max_min_fairness(replace(whole, interior=True)))


@given(problems)
def test_sharing_beats_an_equal_part_of_every_kind(drawn: AllocationProblem) -> None:
    apart = drawn.gangs / drawn.weights * compute_isolated(drawn) / normal(drawn)

    assert max_min_fairness(drawn).value >= apart.min() * (1 - 1e-6)


@given(problems, st.floats(0.01, 100.0))
def test_the_unit_of_a_job_s_steps_does_not_matter(drawn: AllocationProblem, factor: float) -> None:
    scaled = drawn.rates.copy()
    scaled[0] *= factor

    same = max_min_fairness(replace(drawn, rates=scaled)).value

    assert same == pytest.approx(max_min_fairness(drawn).value, rel=1e-5)


@given(problems)
def test_pairs_never_make_it_worse(drawn: AllocationProblem) -> None:
    first, second = np.triu_indices(len(drawn), 1)
    alike = drawn.gangs[first] == drawn.gangs[second]
    first, second = first[alike], second[alike]
    speeds = np.stack([0.6 * drawn.rates[first], 0.7 * drawn.rates[second]], axis=2)
    model = np.arange(len(drawn), dtype=float)

    packed = replace(drawn, pairs=SharedPairs(first, second, speeds), model=model)

    assert max_min_fairness(packed).value >= max_min_fairness(drawn).value - 1e-6


# What a job gives up where it is a thousand times faster is a thousand times more to others.
A_HAIR = 1e-9


@given(problems)
@example(
    problem(
        [
            (98.9, 1.0, 0.1),
            (98.9, 0.1, 1.0),
            (9.8, 59.3, 1.0),
            (99.9, 14.5, 98.9),
            (1.1, 100.0, 50.0),
            (1.0, 9.8, 9.8),
        ],
        (2, 4, 3),
        gangs=[2, 1, 2, 2, 2, 2],
        weights=[5.0, 1.0, 1.0, 5.0, 1.0, 1.0],
    )
)
def test_no_level_can_rise_once_the_water_is_in(drawn: AllocationProblem) -> None:
    whole = replace(drawn, tenant=np.zeros(len(drawn)), rank=np.arange(len(drawn), dtype=float))
    solution = hierarchical(whole, {}, set())
    reached = solution.throughput(whole)

    for job in range(len(drawn)):
        others = np.where(np.arange(len(drawn)) == job, 0.0, reached * (1 - A_HAIR))
        assert _best(whole, job, others) <= reached[job] * (1 + 5e-3) + 1e-6


def _best(drawn: AllocationProblem, job: int, floors: Floats) -> float:
    """The most that one job can have while the others keep theirs."""
    program = Program(drawn)
    mine = np.where(program.member == job, program.rate, 0.0)
    worth = np.bincount(program.variable, mine, program.n).astype(float)
    return greatest_sum(program, worth, floors).value


def test_jobs_that_look_alike_are_solved_as_one_and_get_the_same() -> None:
    many = problem([*THREE] * 50, (36, 36, 36))

    solution = max_min_fairness(many)

    assert solution.value == pytest.approx(max_min_fairness(replace(many, interior=True)).value)
    assert solution.alone[:3] == pytest.approx(solution.alone[3:6])


# ---- the mechanism


def run(
    jobs: Trace,
    policy: Gavel,
    cluster: str,
    table: Throughputs,
    rounds: int | None = None,
    seed: int = 0,
) -> tuple[Physics, list[tuple[float, Event]], Scheduler]:
    log: list[tuple[float, Event]] = []
    machines, physics = parse_cluster(cluster), Physics(jobs, table)
    scheduler = Scheduler(
        policy,
        machines,
        knowledge=Knowledge(NoPredictor(), ThroughputBeliefs(table)),
        seed=seed,
        journal=lambda now, event: log.append((now, event)),
    )
    driver = Simulation(scheduler, physics, machines, seed=seed)
    if rounds is None:
        driver.run()
    else:
        while sum(isinstance(event, Decided) for _, event in log) < rounds:
            driver._settle(now := driver._next_time(), driver._happening(now))
    return physics, log, scheduler


E11 = ("ResNet-50 (batch size 64)", "A3C", "LM (batch size 80)")


def endless(*models: str) -> Trace:
    pairs = tuple((Job(JobId(str(i)), model=m), Truth(1e9)) for i, m in enumerate(models))
    return Trace("endless", pairs)


@pytest.mark.parametrize("policy", [Gavel(), AuthorsGavel()])
def test_e11_twelve_rounds(policy: Gavel) -> None:
    cluster = "1x1:v100+1x1:p100+1x1:k80"

    _, log, scheduler = run(endless(*E11), policy, cluster, load_published(), rounds=12)

    rounds: list[str] = []
    held: dict[str, str] = {}
    for _, event in log:
        if isinstance(event, Decided):
            held.update({j: on.slices[0].node if on else "" for j, on in event.changes.items()})
            on = {node.partition("-")[0]: job for job, node in held.items()}
            rounds.append("".join(on[kind] for kind in NAMES))
    assert " ".join(rounds) == "021 120 021 120 012 120 021 120 021 120 012 120"
    assert isinstance(scheduler.memory, UnitAccounts)
    expected = [(0.52476, 0, 0.47524), (0.47524, 0.15011, 0.37464), (0, 0.84989, 0.15011)]
    assert scheduler.memory.share == pytest.approx(np.array(expected), abs=1e-5)


def test_time_received_approaches_the_shares() -> None:
    cluster, rounds = "1x1:v100+1x1:p100+1x1:k80", 200

    _, _, scheduler = run(endless(*E11), Gavel(), cluster, load_published(), rounds=rounds)

    book = scheduler.memory
    assert isinstance(book, UnitAccounts)
    got = (book.received - 180.0) / (360.0 * (rounds - 1))
    assert np.abs(got - book.share).max() < 0.02


def test_a_job_keeps_its_devices_while_it_stays_on_a_kind() -> None:
    models = ("A3C",) * 3

    physics, _, _ = run(endless(*models), Gavel(), "1x4:v100", load_published(), rounds=20)

    assert physics.starts.tolist() == [1, 1, 1]


def test_the_authors_code_makes_a_newcomer_wait() -> None:
    jobs = (
        (Job(JobId("old"), model="A3C"), Truth(20_000.0)),
        (Job(JobId("new"), 400.0, model="A3C"), Truth(3_000.0)),
        (Job(JobId("newer"), 800.0, model="A3C"), Truth(3_000.0)),
    )

    ours, _, _ = run(Trace("late", jobs), Gavel(), "1x4:v100", load_published())
    theirs, _, _ = run(Trace("late", jobs), AuthorsGavel(), "1x4:v100", load_published())

    assert ours.first_start.tolist() == [0.0, 720.0, 1080.0]
    # The reset at 720 s is the last that needs no waiting: the next is 1920 s later.
    assert theirs.first_start.tolist() == [0.0, 720.0, 2880.0]


def test_pairs_share_devices_where_it_pays() -> None:
    key = ("A3C", 1)
    table = Throughputs({"v100": {key: 4.0}}, {"v100": {(key, key): (3.6, 3.6)}})
    jobs = endless("A3C", "A3C")

    _, _, scheduler = run(jobs, Gavel(packed=True), "1x1:v100", table, rounds=2)

    held = [on for on in scheduler.state.table.allocations if on]
    assert [on.sharing.share for on in held] == [0.5, 0.5]
    assert held[0].slices == held[1].slices


def test_gavel_in_sia_s_simulator() -> None:
    policy = Gavel(objective="max-sum-throughput", solve="round", queue="all")
    jobs = endless("LM (batch size 5)", "LM (batch size 5)", "A3C")

    _, _, scheduler = run(jobs, policy, "1x1:v100+1x1:k80", load_published(), rounds=4)

    book = scheduler.memory
    assert isinstance(book, UnitAccounts)
    # Shares are solved every round, received time is never forgotten.
    assert book.reset_at == 3 * 360.0
    assert book.received.sum() == pytest.approx(180.0 * 6 + 2 * 3 * 360.0)


def test_tenants_and_prices_are_names_with_numbers() -> None:
    with pytest.raises(InvalidConfig, match="shares='a' is not name=number"):
        build("policy", "gavel:shares=a")
    with pytest.raises(InvalidConfig, match="round=0"):
        Gavel(round=0)


@pytest.mark.parametrize("objective", [*OBJECTIVES, "cost", "hierarchical"])
def test_every_objective_keeps_the_contract_of_a_policy(objective: Objective) -> None:
    check_contract(Gavel(objective, round=1800.0))  # fewer rounds, the same decisions


@pytest.mark.parametrize(
    "policy",
    [
        AuthorsGavel(round=1800.0),
        AuthorsGavel("fifo", round=1800.0),
        Gavel(aware=False, round=1800.0),
        Gavel(packed=True, round=1800.0),
        Gavel("max-sum-throughput", solve="round", queue="all", round=1800.0),
    ],
    ids=["authors", "authors-fifo", "agnostic", "packed", "sia"],
)
def test_every_variant_keeps_the_contract_of_a_policy(policy: Gavel) -> None:
    check_contract(policy)


def test_a_job_that_may_not_be_stopped_is_left_alone() -> None:
    firm = Job(JobId("firm"), model="A3C", preemptible=False)
    others = [Job(JobId(f"{i}"), 10.0, model="A3C") for i in range(3)]
    jobs = Trace("firm", ((firm, Truth(9_000.0)), *((job, Truth(900.0)) for job in others)))

    physics, _, _ = run(jobs, Gavel(), "1x2:v100", load_published())

    assert physics.starts[0] == 1
    assert physics.ended_at[0] == 9_000.0


def test_a_gang_that_fits_no_kind_it_accepts_waits() -> None:
    picky = Job(JobId("picky"), demand=Demand(2, kinds=("k80",)))
    view = view_of("1x4:v100+1x1:k80", picky, Job(JobId("easy")))

    assert set(view.after(Gavel().decide(view))) == {"easy"}


# ---- the published runs

PHYSICAL = "2x4:v100+4x4:p100+6x4:k80"


@pytest.mark.data
@pytest.mark.parametrize(
    ("trace", "policy", "hours"),
    [
        ("max_min_fairness", AuthorsGavel(), 3.82),
        ("max_min_fairness", AuthorsGavel(aware=False), 5.23),
    ],
    ids=["aware", "agnostic"],
)
def test_the_authors_simulator_is_met(
    data: Callable[[str], Path], trace: str, policy: Gavel, hours: float
) -> None:
    table = read_throughputs(data("gavel/physical_cluster_throughputs.json"))
    jobs = find(str(data(f"gavel/{trace}.trace")))

    physics, _, _ = run(jobs, policy, PHYSICAL, table)

    jct = physics.ended_at - [job.submitted for job, _ in jobs]
    assert float(jct.mean()) / 3600 == pytest.approx(hours, rel=0.03)


@pytest.mark.data
def test_the_authors_makespan_is_met(data: Callable[[str], Path]) -> None:
    table = read_throughputs(data("gavel/physical_cluster_throughputs.json"))
    jobs = find(str(data("gavel/minimize_makespan.trace")))

    physics, _, _ = run(jobs, AuthorsGavel("makespan"), PHYSICAL, table)

    assert physics.ended_at.max() / 3600 == pytest.approx(17.40, rel=0.03)


# ---- as the authors' code runs it


def test_alone_on_an_equal_part_a_gang_gets_only_as_many_gangs_as_fit_there() -> None:
    # Four jobs on 8 + 4 GPUs: a part is 2 + 1 GPUs. A gang of 4 runs there half of the time on
    # the first kind and a quarter on the second; a single GPU all the time, two thirds on the
    # first (parts beyond all the time are cut back in proportion).
    gangs = problem([[10.0, 5.0]] * 4, (8, 4), gangs=(4, 1, 2, 1))

    alone = compute_isolated(gangs)

    assert alone[0] == pytest.approx(10.0 * 2 / 4 + 5.0 * 1 / 4)
    assert alone[1] == pytest.approx(10.0 * 2 / 3 + 5.0 * 1 / 3)
    assert alone[2] == pytest.approx(10.0 * 2 / 3 + 5.0 * 1 / 3)


def test_without_awareness_first_come_keeps_its_kind_and_the_next_takes_any_with_room() -> None:
    rates = [[1.0, 1.0, 1.0]] * 4
    kept = np.zeros((4, 3))
    kept[0, 1] = 1.0
    first = problem(rates, (1, 2, 1), gangs=(1, 1, 1, 1), rank=range(4))

    seen = {
        tuple(random_fifo(first, kept, np.random.default_rng(seed)).alone[1].tolist())
        for seed in range(30)
    }
    whole = random_fifo(first, kept, np.random.default_rng(0)).alone

    assert whole[0].tolist() == [0.0, 1.0, 0.0]
    assert len(seen) == 3
    assert (whole.sum(axis=0) <= (1, 2, 1)).all()


def test_without_awareness_nobody_is_sent_to_a_kind_that_cannot_run_him() -> None:
    apart = problem([[0.0, 2.0], [1.0, 0.0]], (4, 4), gangs=(1, 1), rank=range(2))

    for seed in range(10):
        solution = random_fifo(apart, np.zeros((2, 2)), np.random.default_rng(seed))
        assert solution.alone.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_first_come_without_awareness_ends_where_some_kinds_cannot_run_a_job() -> None:
    cluster = parse_cluster("6x4:k80+4x4:p100+2x4:v100")
    result = compare(
        "gavel",
        [find_authors_class("authors/gavel:objective=fifo,aware=false")],
        cluster.name,
        jobs=40,
    )

    (outcome,) = result["policies"].values()
    assert outcome["jobs"] == 40


def test_the_authors_makespan_is_within_five_percent_above_the_least() -> None:
    three = problem(THREE, (1, 1, 1), steps=(4e5, 3e5, 9e5))

    best, halved = makespan(three).value, bisect_makespan(replace(three, interior=True))

    assert best <= halved.value <= 1.05 * best
    assert (halved.throughput(three) * halved.value >= three.steps * (1.0 - 1e-6)).all()


def test_the_authors_makespan_is_a_time_that_their_bisection_asks_for() -> None:
    # From 100 and a million seconds, until they are within five per cent.
    best = makespan(single := problem(((1.0,),), (1,), steps=(5000.0,))).value
    low, high = 100.0, 1e6
    while 1.05 * low < high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if middle >= best else (middle, high)

    assert bisect_makespan(replace(single, interior=True)).value == pytest.approx(high, rel=1e-12)


def test_the_authors_makespan_gives_short_jobs_a_share_from_the_middle() -> None:
    # Two GPUs: the long job needs nearly all of one. The others need a fiftieth of the time and may
    # have half of a GPU each, and all in between is as good.
    short = replace(problem(((1.0,),) * 3, (2,), steps=(5000.0, 100.0, 100.0)), interior=True)

    solution = bisect_makespan(short)

    needed = 100.0 / solution.value
    assert needed < 0.02
    assert solution.alone[1:, 0] == pytest.approx([0.4, 0.4], abs=0.1)


def test_the_least_target_is_found_where_a_straight_line_between_both_ends_would_creep() -> None:
    asked = []

    def within(target: float) -> tuple[float, Solution]:
        asked.append(target)
        slack = 1.0 - target**-8.0
        return slack, Solution(target if slack >= 0.0 else np.inf, np.zeros(0), np.zeros(0))

    assert minimise_value(within, 0.5, 10.0).value == pytest.approx(1.0, rel=1e-5)
    assert len(asked) < 40


class CostlyRestarts(LinearBeliefs):
    def restart_s(self, table: JobTable) -> Floats:
        return np.full(len(table), 20.0)


@pytest.mark.parametrize(("kind", "received"), [(AuthorsGavel, 50.0 + 80.0), (Gavel, 50.0 + 100.0)])
def test_the_authors_do_not_count_a_restart_as_received(kind: type[Gavel], received: float) -> None:
    policy = kind(round=100.0, solve="round")
    known = Knowledge(NoPredictor(), CostlyRestarts())
    scheduler = Scheduler(policy, parse_cluster("1x1:v100"), knowledge=known)
    scheduler.step(0.0, [Submitted(Job(JobId("a")))])
    scheduler.step(0.0, [Started(JobId("a"), 1)])

    scheduler.step(100.0, [Woken()])

    assert isinstance(scheduler.memory, UnitAccounts)
    assert scheduler.memory.received[0, 0] == pytest.approx(received)


def test_the_order_of_a_composition_gives_the_same_rounds_on_one_kind() -> None:
    """Three that share one GPU, and one of four times their weight: whoever is owed most runs."""
    weighted = [Job(JobId(name), priority=4.0 if name == "d" else 0.0) for name in "abcd"]
    trace = Trace("four", tuple((job, Truth(3600.0)) for job in weighted))
    specs = ("gavel:solve=round", "compose:order=gavel")

    own, joined = (
        simulate(trace, spec, "1x1:v100", restart_cost=0.0).outcomes[spec][0].per_job.end_s
        for spec in specs
    )

    assert sorted(joined) == pytest.approx(sorted(own))  # who goes first of equals is free
    assert joined[3] == pytest.approx(own[3])
    assert int(joined.argmin()) == 3


# ---- whole policies in which the objective decides

KINDS = Throughputs({"v100": {("a", 1): 4.0, ("b", 1): 2.0}, "k80": {("a", 1): 1.0, ("b", 1): 1.0}})
DEAR: dict[str, Any] = {"prices": {"v100": 3.0, "k80": 1.0}}
CHEAP: dict[str, Any] = {"prices": {"v100": 1.0, "k80": 3.0}}


def queue_up(name: str, steps: float = 400.0, at: float = 0.0, due: float | None = None) -> Job:
    hints, tenant = {"steps": steps}, "vision" if name == "a" else "speech"
    return Job(JobId(name), at, model=name, tenant=tenant, hints=hints, deadline=due)


@pytest.mark.parametrize(
    ("objective", "options", "jobs", "expected"),
    [
        ("max-min-fairness", {}, ("a", "b"), [(0.5, 0.5), (0.5, 0.5)]),
        # All 228.6 s: a makes 1.75 steps a second and b as many.
        ("makespan", {}, ("a", "b"), [(0.25, 0.75), (0.75, 0.25)]),
        ("max-sum-throughput", {}, ("a", "b"), [(1, 0), (0, 1)]),
        # 4 steps for 3 dollars beat 5 for 4; at the other prices 4 for 1 beat anything.
        ("cost", DEAR, ("a", "b"), [(1, 0), (0, 0)]),
        ("cost", CHEAP, ("a", "b"), [(1, 0), (0, 0)]),
        ("cost", DEAR, ("b",), [(0, 1)]),
        ("cost", CHEAP, ("b",), [(1, 0)]),
        # 2 x + (1 - x) = 400 / 210 steps a second.
        ("slo", {}, ("a", ("b", 400.0, 0.0, 1210.0)), [(2 / 21, 19 / 21), (19 / 21, 2 / 21)]),
        ("slo", {}, ("a", ("b", 400.0, 0.0, 1100.0)), [(1, 0), (0, 1)]),  # nobody can be so fast
        # (1 + 3 x) / 2.5 and (2 - x) / 1.5 are as 1 to 3: x is a thirty-second.
        (
            "hierarchical",
            {"shares": {"vision": 1.0, "speech": 3.0}},
            ("a", "b"),
            [(1 / 32, 31 / 32), (31 / 32, 1 / 32)],
        ),
        ("shortest-job", {}, ("a", ("b", 40.0)), [(0, 1), (1, 0)]),
        ("shortest-job", {}, ("a", ("b", 4000.0)), [(1, 0), (0, 1)]),
        ("fifo", {}, ("a", "b"), [(1, 0), (0, 1)]),
        ("fifo", {}, ("b", "a"), [(1, 0), (0, 1)]),  # of those who came first
    ],
)
def test_objectives_give_the_fast_gpu_to_different_jobs(
    objective: Objective,
    options: dict[str, Any],
    jobs: tuple[str | tuple[Any, ...], ...],
    expected: list[tuple[float, float]],
) -> None:
    queue = [queue_up(*((job,) if isinstance(job, str) else job)) for job in jobs]
    view = view_of("1x1:v100+1x1:k80", *queue, now=1000.0)

    plan = Gavel(objective=objective, **options).decide(with_speeds(view))

    assert isinstance(plan.memory, UnitAccounts)
    assert plan.memory.share == pytest.approx(np.array(expected), abs=1e-4)


@pytest.mark.parametrize(("late", "other"), [("a", "b"), ("b", "a")])
def test_who_is_late_gets_the_fast_gpu_where_finish_times_are_to_be_fair(
    late: str, other: str
) -> None:
    view = view_of("1x1:v100+1x1:k80", queue_up(late), queue_up(other, 4000.0, 990.0), now=1000.0)

    held = view.after(Gavel(objective="finish-time-fairness").decide(with_speeds(view)))

    assert held[JobId(late)].slices[0].node.startswith("v100")


def with_speeds(view: View) -> View:
    return with_knowledge(view, beliefs=ThroughputBeliefs(KINDS))
