"""Shockwave (NSDI 2023): worked examples, plans against enumeration, rules of rounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cheap import check_contract

from weft.app.simulate.api import simulate
from weft.core.errors import InvalidConfig
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.formulas.training.regimes import Regimes, past_seconds, predict_remaining
from weft.perf.training.learner import Learner
from weft.testing import view_of
from weft.testing.build import with_knowledge
from weft_papers.shockwave.authors import CONSTANTS, AuthorsShockwave
from weft_papers.shockwave.packing import _gains, fill, order_early, place_rounds, plan_rounds
from weft_papers.shockwave.policy import (
    RoundJobs,
    Shockwave,
    ShockwaveMemory,
    TargetSeries,
    share,
    target,
)
from weft_papers.shockwave.published.packing import draw
from weft_papers.shockwave.welfare import (
    Counts,
    RoundWindow,
    choose_counts,
    choose_rounds,
    find_collisions,
    log_progress,
    value,
)

EPOCHS = (32, 32, 32, 32, 64, 64, 64, 64, 128, 128)
RUNS = ((32, 4), (64, 4), (128, 2))
DECLARED = Regimes(10, {32: 100.0, 64: 60.0, 128: 40.0})
ONE = ((10, 0, 60, 600, 1), (10, 4, 120, 720, 1), (20, 2, 30, 540, 2))
TWO = ((100, 50, 60, 3000, 1), (10, 1, 60, 540, 1), (10, 2, 60, 480, 1))
FIRST = np.array([True, False])
Rows = tuple[tuple[float, ...], ...]


def window(jobs: Rows, gpus: float, rounds: int = 5) -> RoundWindow:
    epochs, over, epoch_s, left, gangs = np.array(jobs, dtype=float).T
    n = len(jobs)
    return RoundWindow(
        *(gangs, epochs, over, epoch_s, left, np.ones(n)), gpus, rounds, 120.0, np.zeros(n)
    )


def plan(problem: RoundWindow, kappa: float) -> Counts:
    counts = choose_counts(problem, kappa, gap=0.0)
    assert counts is not None
    return counts


# ---- the worked examples


def test_targets_on_half_a_share() -> None:
    seen = [EpochsSoFar.after(over, RUNS) for over in (0, 1, 3, 5, 7, 9)]

    targets = [
        target(
            0.0,
            past_seconds(DECLARED, regimes),
            predict_remaining(DECLARED, regimes),
            share(1.0, 2),
        )
        for regimes in seen
    ]

    expected = [1193.9394, 1244.4444, 1323.8095, 1363.3333, 1331.8519, 1448.8889]
    assert targets == pytest.approx(expected, abs=1e-4)


def test_targets_are_averaged_over_the_rounds_they_held() -> None:
    three = TargetSeries(0, 0, 1000.0).append(5, 1400.0).append(15, 1200.0)

    assert three.average(20) == pytest.approx(1245.0)
    assert TargetSeries(3, 3, 900.0).average(3) == 900.0
    assert TargetSeries(0, 0, 1000.0).append(10, 2000.0).average(10) == pytest.approx(1100.0)


def test_the_logarithm_between_its_knots() -> None:
    expected = [-10.763992, -7.712474, -1.262864, -0.713558, -0.366985, -0.111572]

    assert log_progress(np.array([0.05, 0.1, 0.3, 0.5, 0.7, 0.9])) == pytest.approx(
        expected, abs=1e-6
    )
    assert log_progress(0.0) == pytest.approx(-13.8155, abs=1e-4)


@pytest.mark.parametrize(
    ("jobs", "gpus", "kappa", "counts", "worth"),
    [
        (ONE, 2, 1e-9, (3, 3, 2), -0.106092),
        (ONE, 2, 1e-3, (3, 3, 2), -0.466091),
        (ONE, 2, 0.1, (3, 3, 2), -36.106091),
        (TWO, 1, 1e-9, (0, 3, 2), -0.106094),
        (TWO, 1, 1e-4, (0, 3, 2), -0.406091),
        (TWO, 1, 1e-3, (4, 1, 0), -2.748245),
        (TWO, 1, 1e-2, (5, 0, 0), -24.655516),
        (TWO, 2, 1e-9, (1, 5, 4), -0.044870),
        (TWO, 2, 1e-3, (5, 3, 2), -2.492576),
    ],
)
def test_published_plans(
    jobs: Rows, gpus: float, kappa: float, counts: tuple[int, ...], worth: float
) -> None:
    problem = window(jobs, gpus)

    rounds = plan(problem, kappa)

    assert tuple(rounds.tolist()) == counts
    assert value(problem, rounds, kappa) == pytest.approx(worth, abs=2e-6)


def test_idle_gpus_go_to_the_longest_remainder_that_fits() -> None:
    gangs, left = np.array([1.0, 4.0, 2.0, 1.0]), np.array([10.0, 900.0, 50.0, 70.0])

    assert fill(3.0, gangs, left, [0, 1, 2, 3]) == [3, 2]
    assert fill(3.0, gangs, left, [0, 2]) == [2, 0]
    assert fill(0.0, gangs, left, [0]) == []


def test_the_authors_constants_go_by_the_size_of_the_cluster() -> None:
    assert CONSTANTS == {32: (1e-3, 12.0), 64: (10.0, 5.0), 128: (1e-3, 15.0), 256: (1e5, 5.0)}
    assert AuthorsShockwave()._constants(64.0) == (10.0, 5.0)
    assert AuthorsShockwave()._constants(48.0) == (10.0, 5.0)
    assert Shockwave(kappa=0.5)._constants(64.0) == (0.5, 12.0)


# ---- plans


def packable(counts: tuple[int, ...], gangs: Floats, gpus: float, rounds: int) -> bool:
    """By trying: rounds of few GPUs, each job in as many of them as its count."""
    sets = [
        chosen
        for chosen in product((0, 1), repeat=len(gangs))
        if float(np.dot(chosen, gangs)) <= gpus
    ]
    reached = {tuple(0 for _ in counts)}
    for _ in range(rounds):
        reached |= {
            tuple(a + b for a, b in zip(state, chosen, strict=True))
            for state in reached
            for chosen in sets
            if all(a + b <= c for a, b, c in zip(state, chosen, counts, strict=True))
        }
    return counts in reached


job_rows = st.tuples(
    st.integers(1, 20),
    st.floats(0.0, 0.95),
    st.sampled_from((20.0, 60.0, 150.0)),
    st.floats(1.0, 2000.0),
    st.sampled_from((1.0, 1.0, 2.0)),
).map(lambda r: (float(r[0]), float(int(r[1] * r[0])), r[2], r[3], r[4]))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(job_rows, min_size=1, max_size=3),
    st.sampled_from((1.0, 2.0, 3.0)),
    st.sampled_from((1e-9, 1e-3, 1.0)),
)
def test_no_plan_that_can_be_packed_is_worth_more(
    jobs: list[tuple[float, ...]], gpus: float, kappa: float
) -> None:
    problem = window(tuple(job for job in jobs if job[4] <= gpus) or ((5, 0, 60, 300, 1),), gpus, 3)
    best = max(
        value(problem, np.array(counts), kappa)
        for counts in product(range(4), repeat=len(problem))
        if packable(counts, problem.gangs, gpus, 3)
    )

    worth = value(problem, plan(problem, kappa), kappa)

    assert worth >= best - 1e-6 - 1e-6 * abs(best)


GANGS = st.sampled_from((1.0, 2.0, 3.0))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(job_rows, GANGS), min_size=2, max_size=4), st.sampled_from((3.0, 4.0)))
def test_what_is_planned_can_be_kept_and_nothing_that_can_is_worth_more(
    jobs: list[tuple[tuple[float, ...], float]], gpus: float
) -> None:
    problem = window(tuple((*row[:4], gang) for row, gang in jobs), gpus, 3)
    best = max(
        value(problem, np.array(counts), 1e-9)
        for counts in product(range(4), repeat=len(problem))
        if packable(counts, problem.gangs, gpus, 3)
    )

    planned = plan_rounds(problem, 1e-9)

    assert planned is not None
    assert (problem.gangs @ planned.runs <= gpus).all()
    assert planned.worth == pytest.approx(best, rel=2e-3, abs=1e-6)
    assert planned.worth == pytest.approx(value(problem, planned.runs.sum(axis=1), 1e-9))
    assert planned.gap >= 0.0


def test_gangs_that_leave_gaps_are_planned_around_them() -> None:
    # Gangs of 3 on 4 GPUs in 40 rounds: the room of all rounds together holds 53 of theirs, the
    # rounds themselves 40. Large windows are repaired, small ones solved round by round.
    jobs = (*[(20.0, 1.0, 120.0, 2280.0, 3.0)] * 4, (20.0, 1.0, 120.0, 2e3, 2.0))
    for rounds in (10, 40):
        problem = window(jobs, 4.0, rounds)
        counts = choose_counts(problem, 1e-9)
        assert counts is not None

        planned = plan_rounds(problem, 1e-9)

        assert planned is not None
        lost = place_rounds(
            counts, problem.gangs, 4.0, rounds, order_early(counts, problem.gangs, problem.weight)
        )
        assert (problem.gangs @ planned.runs <= 4.0).all()
        assert planned.worth >= value(problem, lost.sum(axis=1), 1e-9)
        assert planned.gap == pytest.approx(planned.bound - planned.worth)


@pytest.mark.parametrize("seed", [8, 24, 27])
def test_large_windows_lose_little_against_the_published_program(seed: int) -> None:
    problem = draw(seed)  # gangs whose counts cannot be packed
    counts = choose_counts(problem, 1e-5)
    exact = choose_rounds(problem, 1e-5)
    assert counts is not None
    assert exact is not None

    planned = plan_rounds(problem, 1e-5)

    assert planned is not None
    order = order_early(counts, problem.gangs, problem.weight)
    lost = place_rounds(counts, problem.gangs, problem.gpus, problem.rounds, order)
    best = value(problem, exact.sum(axis=1), 1e-5)
    assert value(problem, lost.sum(axis=1), 1e-5) < best - 0.01 * abs(best)
    assert planned.worth >= best - 0.003 * abs(best)
    assert planned.gap == pytest.approx(planned.bound - planned.worth, abs=1e-12)
    assert planned.gap > 0.0 or planned.worth >= planned.bound
    assert (problem.gangs @ planned.runs <= problem.gpus).all()


def test_all_of_the_longest_jobs_keep_their_rounds_where_gangs_leave_gaps() -> None:
    # Two of 3 GPUs on 8 have 40 rounds each to go in a window of 20: only if both run in all of
    # them is the longest remainder shorter, and a gang of 4 that is worth more has to wait.
    jobs = (*[(80.0, 40.0, 120.0, 4800.0, 3.0)] * 2, *[(100.0, 0.0, 12.0, 1200.0, 4.0)] * 6)
    problem = window(jobs, 8.0, 20)

    planned = plan_rounds(problem, 1.0)

    assert planned is not None
    assert planned.runs[:2].sum(axis=1).tolist() == [20, 20]


def test_parts_of_gpus_are_packed_too() -> None:
    jobs = (*[(20.0, 1.0, 120.0, 2280.0, 0.75)] * 4, *[(20.0, 1.0, 120.0, 2280.0, 0.5)] * 4)
    problem = window(jobs, 1.25, 20)

    planned = plan_rounds(problem, 1e-9)

    assert planned is not None
    assert (problem.gangs @ planned.runs <= 1.25).all()
    assert planned.runs.sum() == 40  # one of each in every round


@settings(deadline=None, max_examples=40)
@given(st.lists(job_rows, min_size=1, max_size=8), st.integers(2, 8), st.integers(1, 6))
def test_more_gpus_are_never_worth_less(
    jobs: list[tuple[float, ...]], gpus: int, more: int
) -> None:
    small, large = window(tuple(jobs), gpus), window(tuple(jobs), gpus + more)

    few, many = plan(small, 1e-3), plan(large, 1e-3)

    assert value(large, many, 1e-3) >= value(small, few, 1e-3) - 1e-7


def test_one_job_runs_in_all_rounds() -> None:
    assert plan(window(((100, 0, 60, 6000, 1),), 4), 1e-9).tolist() == [5]


def test_finish_times_that_cannot_be_met_leave_no_plan() -> None:
    problem = window(TWO, 1)

    assert choose_counts(replace(problem, least_s=np.array([601.0, 0.0, 0.0])), 1e-3) is None
    assert choose_counts(replace(problem, least_s=np.array([400.0, 300.0, 0.0])), 1e-3) is None
    met = choose_counts(replace(problem, least_s=np.array([0.0, 0.0, 480.0])), 1e-9)
    assert met is not None
    assert met.tolist() == [0, 1, 4]


def test_half_a_second_that_must_be_run_is_worth_more_than_what_another_gains() -> None:
    # Nearly done, both gain little by a round, and the second one more: 2 % of its epochs.
    problem = window(((1000, 950, 60, 3000, 1), (100, 90, 60, 600, 1)), 1.0)
    none = np.zeros(2, dtype=int)

    free = _gains(problem, none, 0.0, 0.0)
    bound = _gains(replace(problem, least_s=np.array([0.5, 0.0])), none, 0.0, 0.0)

    assert free.of(FIRST) < free.of(~FIRST)
    assert bound.of(FIRST) > bound.of(~FIRST)


@pytest.mark.parametrize("seed", [21, 37, 45, 55])
def test_parts_of_a_second_that_must_be_run_are_planned_however_heavy_others_are(seed: int) -> None:
    # Late jobs about to end must run; others that are late weigh a million times as much as usual.
    rng = np.random.default_rng(seed)
    gangs = rng.choice([1, 2, 3, 5, 6], 14)
    epochs = rng.integers(4, 20, 14)
    over = np.floor(epochs * rng.random(14) * 0.9)
    epoch_s = rng.choice([60.0, 120.0, 300.0], 14)
    left_s = (epochs - over) * epoch_s
    jobs = tuple(zip(epochs, over, epoch_s, left_s, gangs, strict=True))
    weight, least_s = np.where(rng.random(14) < 0.3, 1e6, 1.0), np.zeros(14)
    late = rng.choice(14, 4, replace=False)
    least_s[late] = rng.choice([0.2, 0.5, 20.0], 4)
    problem = replace(window(jobs, 8.0, 12), weight=weight, least_s=least_s)
    assert choose_rounds(problem, 1e-3) is not None

    planned = plan_rounds(problem, 1e-3)

    assert planned is not None
    assert (problem.run_s(planned.runs.sum(axis=1)) >= least_s).all()


def test_gangs_that_cannot_run_beside_each_other_are_told_to_the_solver() -> None:
    sets = find_collisions(np.array([3.0, 3.0, 2.0, 1.0]), 4.0)

    limits = [(together.tolist(), most) for together, most in sets]
    assert ([0, 1], 1) in limits
    assert ([0, 1, 2], 1) in limits
    assert ([0, 1, 3], 1) not in limits


# ---- rounds

counts_of = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from((1.0, 1.0, 2.0, 4.0)), st.floats(1.0, 50.0)),
    min_size=1,
    max_size=12,
)


def placed(jobs: list[tuple[int, float, float]], gpus: float) -> tuple[Counts, Floats, Bools]:
    counts = np.array([job[0] for job in jobs], dtype=np.int64)
    gangs, weight = np.array([job[1] for job in jobs]), np.array([job[2] for job in jobs])
    return counts, gangs, place_rounds(counts, gangs, gpus, 6, order_early(counts, gangs, weight))


@given(counts_of, st.integers(4, 16))
def test_no_round_exceeds_the_gpus_and_no_job_its_count(
    jobs: list[tuple[int, float, float]], gpus: int
) -> None:
    counts, gangs, runs = placed(jobs, gpus)

    assert (gangs @ runs <= gpus).all()
    assert (runs.sum(axis=1) <= counts).all()


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(1.0, 50.0)), min_size=1, max_size=12))
def test_single_gpus_get_every_round_they_count_on(jobs: list[tuple[int, float]]) -> None:
    whole = [(count, 1.0, weight) for count, weight in jobs]
    gpus = -(-sum(count for count, _ in jobs) // 6) or 1

    counts, _, runs = placed(whole, gpus)

    assert runs.sum(axis=1).tolist() == counts.tolist()


def test_who_must_run_in_every_round_is_not_crowded_out() -> None:
    counts, gangs = np.array([6, 1, 1, 1, 1, 1, 1]), np.ones(7)
    order = order_early(counts, gangs, np.array([1.0] + [50.0] * 6))

    runs = place_rounds(counts, gangs, 2.0, 6, order)

    assert runs[0].all()
    assert runs.sum() == 12


def mean_rounds(runs: Bools, weight: Floats) -> float:
    """Sum over jobs of weight times the mean index of their rounds."""
    index = np.arange(runs.shape[1])
    held = runs.sum(axis=1)
    some = held > 0
    return float((weight[some] * (runs[some] @ index) / held[some]).sum())


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.floats(1.0, 20.0)), min_size=2, max_size=4))
def test_heavy_jobs_run_early(jobs: list[tuple[int, float]]) -> None:
    counts, weight = np.array([c for c, _ in jobs]), np.array([w for _, w in jobs])
    gangs = np.ones(len(jobs))

    runs = place_rounds(counts, gangs, 1.0, 12, order_early(counts, gangs, weight))

    # On one GPU the order by weight over rounds is the best of all orders (Smith's rule), with
    # mean rounds in place of ends: an exchange of neighbours gains nothing.
    best = min(_sequence(counts, weight, order) for order in _permutations(len(jobs)))
    assert mean_rounds(runs, weight) <= best + 1e-6 * abs(best) + 1e-9


def _permutations(n: int) -> list[tuple[int, ...]]:
    return [p for p in product(range(n), repeat=n) if len(set(p)) == n]


def _sequence(counts: Counts, weight: Floats, order: tuple[int, ...]) -> float:
    total, at = 0.0, 0
    for job in order:
        total += float(weight[job]) * (at + (int(counts[job]) - 1) / 2)
        at += int(counts[job])
    return total


# ---- the policy


def decide_at(now: float, memory: object, *left: float) -> Plan:
    """A decision on one GPU about jobs a, b, ... with so many seconds left each."""
    jobs = [(name, 1, seconds) for name, seconds in zip("abcd", left, strict=False)]
    policy = Shockwave(round=60.0, window=20, replan=8)
    return policy.decide(replace(view_of(1, *jobs, now=now), memory=memory))


def test_a_plan_is_followed_until_somebody_comes() -> None:
    first = decide_at(60.0, None, 600.0, 600.0)

    again = decide_at(120.0, first.memory, 600.0, 600.0)
    new = decide_at(120.0, first.memory, 600.0, 600.0, 9.0)

    assert isinstance(first.memory, ShockwaveMemory)
    assert again.memory is first.memory
    assert isinstance(new.memory, ShockwaveMemory)
    assert (new.memory.since, new.memory.jobs) == (2, ("a", "b", "c"))


def test_a_plan_is_made_again_after_some_rounds() -> None:
    first = decide_at(60.0, None, 6000.0, 6000.0)

    kept = decide_at(8 * 60.0, first.memory, 6000.0, 6000.0)
    new = decide_at(9 * 60.0, first.memory, 6000.0, 6000.0)

    assert kept.memory is first.memory  # eight rounds after the last plan, not at multiples of 8
    assert isinstance(new.memory, ShockwaveMemory)
    assert new.memory.since == 9


def test_same_state_same_plan() -> None:
    views = [
        view_of(4, *((f"j{i}", 1 + i % 2, 300.0 * (i + 1)) for i in range(9))) for _ in range(2)
    ]

    assert Shockwave().decide(views[0]) == Shockwave().decide(views[1])


def test_no_gpu_idles_beside_a_job_that_fits() -> None:
    jobs = [(f"j{i}", (1, 2, 4, 1)[i % 4], 50.0 + 400.0 * i) for i in range(20)]
    view = view_of("1x16:v100", *jobs)

    plan_ = Shockwave().decide(view)

    held = sum(on.gpus for on in plan_.changes.values() if on is not None)
    waiting = [gpus for name, gpus, _ in jobs if JobId(name) not in plan_.changes]
    assert all(gpus > 16 - held for gpus in waiting)


def test_the_longest_job_is_never_left_behind() -> None:
    jobs = [("long", 1, 20_000.0), *((f"s{i}", 1, 1200.0) for i in range(12))]

    fair = Shockwave(kappa=1e-9).decide(view_of(2, *jobs))
    regularised = Shockwave(kappa=1.0).decide(view_of(2, *jobs))

    assert isinstance(fair.memory, ShockwaveMemory)
    assert isinstance(regularised.memory, ShockwaveMemory)
    assert all(JobId("long") in jobs for jobs in regularised.memory.rounds)
    assert not all(JobId("long") in jobs for jobs in fair.memory.rounds)


@pytest.mark.slow
def test_shorter_jobs_are_favoured_where_that_is_asked_for() -> None:
    mean = {}
    for shorter in (0.0, 2.0):
        policy = Shockwave(shorter=shorter)
        result = simulate("regimes", policy, "4x2:v100", jobs=40, restart_cost=20.0)
        mean[shorter] = result["policies"]["shockwave"]["avg_jct_h"]

    assert mean[2.0] < 0.95 * mean[0.0]


@pytest.mark.parametrize(
    "parameters",
    [
        {"round": 0.0},
        {"window": 0},
        {"replan": 0},
        {"kappa": -1.0},
        {"exponent": -1.0},
        {"rho": 0.0},
        {"shorter": -1.0},
    ],
)
def test_shockwave_refuses_parameters_that_mean_nothing(parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match="shockwave"):
        Shockwave(**parameters)  # type: ignore[arg-type]


def test_the_contract_holds_with_weight_on_shorter_jobs() -> None:
    check_contract(AuthorsShockwave(window=4, round=1800.0, shorter=2.0))


@pytest.mark.parametrize(("policy", "planned"), [(Shockwave(), True), (AuthorsShockwave(), False)])
def test_a_job_that_goes_on_after_its_last_epoch_is_not_forgotten(
    policy: Shockwave, planned: bool
) -> None:
    job = Job(JobId("a"), hints=Regimes(3, {8: 60.0}).hints())
    training = Learner()
    training.observe(job, "v100", Report(epoch=3.0, batch=8.0))
    view = view_of(1, job, ("long", 1, 5000.0), now=1200.0)

    plan_ = policy.decide(with_knowledge(view, training=training))

    assert isinstance(plan_.memory, ShockwaveMemory)
    assert any(JobId("a") in jobs for jobs in plan_.memory.rounds) is planned


def test_jobs_without_regimes_are_planned_by_their_predicted_time() -> None:
    view = view_of(1, Job(JobId("a"), demand=Demand(1), hints={"duration_s": 240.0}))

    plan_ = Shockwave().decide(view)

    assert set(plan_.changes) == {"a"}


def test_the_exponent_of_lateness_decides_who_runs() -> None:
    # On one GPU: a would end at twice its target, b at 1.2 times. To the twelfth power that is
    # 4,096 against 9, more than the logarithm's first piece is steeper than its last (55 times).
    # To the first power b is worth its first rounds.
    targets = {JobId("a"): TargetSeries(0, 0, 1500.0), JobId("b"): TargetSeries(0, 0, 2500.0)}
    old = ShockwaveMemory(0, ((),), (JobId("a"), JobId("b")), targets)
    view = replace(view_of(1, ("a", 1, 1200.0), ("b", 1, 1200.0), now=600.0), memory=old)

    rounds, mark = {}, view.free.mark()
    for exponent in (12.0, 1.0):
        memory = Shockwave(round=60.0, exponent=exponent, kappa=1e-9).decide(view).memory
        view.free.rollback(mark)
        assert isinstance(memory, ShockwaveMemory)
        rounds[exponent] = sum("a" in jobs for jobs in memory.rounds)

    assert rounds[12.0] == 20
    assert 5 <= rounds[1.0] <= 15


def test_a_target_that_can_be_met_is_met_against_welfare() -> None:
    # On one GPU, four rounds of 60 s: a has all before it and its logarithm is steep, b is at 0.95.
    # b ends at its target, 600 s, only if 300 s - 0.5 x (600 s - 240 s) of it run in the window.
    rows = np.array([(1, 0, 100, 0, 60, 0, 6000), (1, 0, 100, 95, 60, 5700, 300)], dtype=float)
    goals = np.array([1e6, 600.0])

    planned = Shockwave(round=60.0, window=4, kappa=1e-9)._plan_rounds(
        RoundJobs(*rows.T), goals, 0, 1.0
    )

    assert planned.runs.sum(axis=1).tolist() == [2, 2]


def trained(epochs: int, epoch_s: float, over: int, at: float, name: str) -> tuple[Job, Report]:
    """A job of one regime, and its report after some epochs."""
    job = Job(JobId(name), at, hints=Regimes(epochs, {8: epoch_s}).hints())
    return job, Report(epoch=float(over), batch=8.0)


def test_a_target_makes_up_for_what_a_job_did_not_get_since_it_came() -> None:
    # One GPU and two jobs: each is due half the time since it came. At the end of the window, at
    # 960 s, a is due 480 s and had 300 s; b, which came at 600 s, is due 180 s: three rounds each,
    # although b's first rounds are worth more.
    learner = Learner()
    jobs = []
    for job, report in (trained(100, 60.0, 5, 0.0, "a"), trained(100, 60.0, 0, 600.0, "b")):
        learner.observe(job, "v100", report)
        jobs.append(job)
    view = with_knowledge(view_of(1, *jobs, now=600.0), training=learner)

    memory = Shockwave(round=60.0, window=6, kappa=1e-9).decide(view).memory

    assert isinstance(memory, ShockwaveMemory)
    assert [sum(name in jobs for jobs in memory.rounds) for name in "ab"] == [3, 3]


@pytest.mark.parametrize(("over", "left_s"), [(1, 522.2222), (5, 221.6667), (9, 44.4444)])
@pytest.mark.parametrize(("other", "first"), [(0.98, "a"), (1.02, "b")])
def test_the_job_that_is_expected_to_take_longer_goes_first(
    over: int, left_s: float, other: float, first: str
) -> None:
    learner = Learner()
    job = Job(JobId("a"), hints=DECLARED.hints())
    for epoch, batch in enumerate(EPOCHS[: over + 1]):
        learner.observe(job, "v100", Report(epoch=float(epoch), batch=float(batch)))
    view = with_knowledge(view_of(1, job, ("b", 1, other * left_s), now=1200.0), training=learner)

    plan_ = Shockwave(round=10.0, window=1, kappa=100.0, rho=100.0).decide(view)

    assert set(plan_.changes) == {first}
