"""Astraea (TPDS 2022): classes, long-term fairness, both phases, and whole runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cheap import check_contract
from tests.examples import some

import weft
from weft.core.errors import InvalidConfig
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.view import View
from weft.sim.result import Outcome
from weft.testing.build import view_of
from weft_papers.astraea.accounts import AstraeaMemory, Rate, count_hours, sum_hours
from weft_papers.astraea.authors import AuthorsAstraea
from weft_papers.astraea.policy import Astraea, chance_to_end, chance_to_end_per_gpu, classify
from weft_papers.astraea.tenants import AstraeaTenant, grant_quotas
from weft_papers.astraea.tests.astraea_reference import Cluster, Ref
from weft_papers.published import find_authors_class

SIMULATOR = "authors/astraea"


# ---- the worked examples


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        *((0.0, 0), (0.01, 1), (0.1, 1), (0.3, 1), (0.5, 2), (0.8, 2), (0.95, 3), (1.0, 3)),
        *((1.2, 3), (1.5, 4), (2.0, 4), (3.0, 5), (100.0, 5)),
    ],
)
def test_the_table_of_classes(x: float, expected: int) -> None:
    assert classify(np.array([x]))[0] == expected


@pytest.mark.parametrize("bound", [0.4723666, 0.8153611, 1.2264504, 2.1170000])
def test_the_bounds_between_classes(bound: float) -> None:
    below, above = classify(np.array([bound - 1e-6, bound + 1e-6]))

    assert above == below + 1


def test_two_jobs_of_a_tenant_deserve_the_same_and_the_less_served_is_next() -> None:
    policy = Astraea(check=900.0)
    names = ("a", 4), ("b", 8)
    jobs = [Job(JobId(n), 0.0, Demand(g), tenant="u") for n, g in names]
    view = view_of(8, *jobs)
    view = replace(view, memory=policy.decide(view).memory)

    # a runs the first 900 s, b the second.
    first, second = ran(view, a=900.0, now=900.0), ran(view, a=900.0, b=900.0, now=1800.0)
    middle = policy.decide(first).memory
    plan = policy.decide(replace(second, memory=middle))

    assert isinstance(plan.memory, AstraeaMemory)
    rows = plan.memory.rows
    assert rows.deserved.tolist() == [7200.0, 7200.0]
    assert rows.ltgf.tolist() == [0.5, 1.0]
    assert {job for job, on in plan.changes.items() if on} == {"a"}


def test_gpus_are_granted_to_the_least_served_tenant() -> None:
    tenants = [
        AstraeaTenant("A", 8.0, 0.0, 30_000.0, 40_000.0, [4.0, 4.0, 2.0]),
        AstraeaTenant("B", 4.0, 2.0, 9_000.0, 20_000.0, [1.0, 4.0, 1.0]),
        AstraeaTenant("C", 4.0, 4.0, 16_000.0, 20_000.0, [2.0]),
    ]
    assert [tenant.ratio for tenant in tenants] == pytest.approx([0.75, 0.45, 0.8])

    allowed, grants = grant_quotas(10.0, tenants, 900.0, 0.2)

    assert [(grant.tenant, grant.gpus) for grant in grants] == [
        *(("A", 4.0), ("B", 1.0), ("B", 4.0), ("B", 1.0))
    ]
    assert allowed == {"A": 4.0, "B": 8.0, "C": 4.0}


EXAMPLE = (
    *((0, "ua", 4, 0, 3000), (1, "ua", 4, 0, 1500), (2, "ub", 2, 0, 2500)),
    *((3, "ub", 4, 600, 1200), (4, "ua", 2, 1200, 800)),
)


def test_five_jobs_of_two_tenants_from_end_to_end() -> None:
    result = simulated(EXAMPLE, 8)

    ltgf = long_term(result, EXAMPLE, 8)
    assert result.per_job.end_s.tolist() == [5210.0, 3300.0, 2810.0, 3110.0, 2000.0]
    assert ltgf == pytest.approx([0.8755, 0.9890, 0.8897, 0.8541, 1.5], abs=5e-5)


def test_the_independent_simulation_agrees_with_the_published_example() -> None:
    reference = referenced(EXAMPLE, 8)

    assert [job.end for job in reference] == [5210, 3300, 2810, 3110, 2000]
    assert [job.expiries for job in reference] == [3, 1, 2, 1, 0]
    assert [job.displaced for job in reference] == [2, 0, 0, 0, 0]


# Mean ends of the authors' own simulator on the same jobs.
AUTHORS = (10160.4, 13518.75, 10501.1, 10719.4833, 10766.0, 9303.9667)


@pytest.mark.parametrize("seed", some(range(6), 0, 2))
def test_every_job_of_astraea_ends_as_in_an_independent_simulation(seed: int) -> None:
    rows = drawn(seed)

    result = simulated(rows, 32)

    reference = referenced(rows, 32)
    ends = [job.end for job in reference]
    assert result.per_job.end_s.tolist() == pytest.approx(ends)
    assert result.per_job.end_s.mean() == pytest.approx(AUTHORS[seed], abs=1e-3)
    assert sum(job.displaced for job in reference) > 0
    assert sum(job.expiries for job in reference) > 20


# ---- single parts


def test_the_chance_to_end_is_among_jobs_that_took_at_least_as_long() -> None:
    ended = {0: 6, 1: 3, 4: 1}

    assert chance_to_end(0.0, 900.0, ended) == pytest.approx(0.6)
    assert chance_to_end(1000.0, 900.0, ended) == pytest.approx(0.75)
    assert chance_to_end(1800.0, 900.0, ended) == 0.0
    assert chance_to_end(9000.0, 900.0, ended) == 1.0


def test_the_reward_is_for_each_gpu_and_by_jobs_of_the_same_size_if_they_are_enough() -> None:
    lengths = {1.0: dict.fromkeys(range(5), 2), 4.0: {0: 10}}

    rewards = chance_to_end_per_gpu(np.array([0.0, 0.0]), np.array([1.0, 4.0]), 900.0, lengths)

    assert rewards.tolist() == pytest.approx([0.2, 12 / 20 / 4])


def test_hours_are_counted_apart_and_forgotten_after_a_day() -> None:
    kept = AstraeaMemory(3000.0, rates={"u": Rate(2.0, 3.0, 4.0)})

    hours = count_hours(kept, 7800.0, 24)

    assert hours == {
        0: {"u": Rate(1200.0, 1800.0, 2400.0)},
        1: {"u": Rate(7200.0, 10_800.0, 14_400.0)},
        2: {"u": Rate(1200.0, 1800.0, 2400.0)},
    }
    assert sum_hours(hours, "u", 2) == Rate(8400.0, 12_600.0, 16_800.0)
    later = count_hours(replace_hours(kept, hours, 30 * 3600.0), 30 * 3600.0, 24)
    assert set(later) == set()


def test_a_job_above_its_tenants_quota_is_refused_only_as_the_authors_do() -> None:
    jobs = [Job(JobId("a"), tenant="u", demand=Demand(6)), Job(JobId("b"), tenant="v")]
    view = view_of(8, *jobs)

    assert set(AuthorsAstraea().decide(view).rejected) == {"a"}
    assert Astraea().decide(view).rejected == {}


def test_a_weight_moves_the_quota() -> None:
    jobs = [Job(JobId(f"{u}{i}"), tenant=u) for u in "uv" for i in range(8)]
    view = replace(view_of(8, *jobs), weights={"u": 3.0})

    plan = Astraea().decide(view)

    assert isinstance(plan.memory, AstraeaMemory)
    assert {name: rate.quota for name, rate in plan.memory.rates.items()} == {"u": 6.0, "v": 2.0}


@pytest.mark.parametrize("field", [{"lease": 0.0}, {"check": -1.0}, {"history": 0}])
def test_times_that_mean_nothing_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=f"astraea: {next(iter(field))}="):
        Astraea(**field)


# ---- the paper's reward decides


@pytest.mark.parametrize(
    ("served", "first"),
    [
        *(((0.1, 0.46), "b"), ((0.1, 0.48), "a"), ((0.48, 0.81), "b"), ((0.48, 0.82), "a")),
        *(((0.82, 1.22), "b"), ((0.82, 1.23), "a"), ((1.23, 2.11), "b"), ((1.23, 2.12), "a")),
    ],
)
def test_who_is_nearer_to_its_end_goes_first_in_a_class_and_who_is_served_less_before_it(
    served: tuple[float, float], first: str
) -> None:
    # On 8 GPUs for one of two jobs of 8: of those of its length one in ten ends in a's next lease,
    # half in b's, which has run twice as long. a was always served less.
    jobs = [Job(JobId(name), 0.0, Demand(8), tenant="u") for name in "ab"]
    policy = Astraea(order="reward")
    kept = policy.decide(view_of(8, *jobs)).memory
    assert isinstance(kept, AstraeaMemory)
    seconds = np.array([900.0, 1800.0])
    view = ran(view_of(8, *jobs), now=9000.0, a=900.0, b=1800.0)
    rows = replace(kept.rows, deserved=8.0 * seconds / np.array(served), running=np.zeros(2, bool))
    lengths = {8.0: {0: 10, 1: 1, 2: 5, 3: 2, 4: 2}}

    plan = policy.decide(
        replace(view, memory=replace(kept, at=9000.0, due=9000.0, rows=rows, lengths=lengths))
    )

    assert {job for job, on in plan.changes.items() if on} == {first}


@pytest.mark.parametrize(
    ("single", "first"),
    [
        (dict.fromkeys(range(5), 2), "one"),  # 0.2 a GPU against 12 / 20 / 4 = 0.15
        ({0: 1, 1: 1, 2: 2, 3: 2, 4: 4}, "four"),  # 0.1 against 11 / 20 / 4 = 0.1375
        ({0: 1, 1: 1, 2: 8, 3: 10}, "one"),  # four lengths say too little: 11 / 30 for both
    ],
)
def test_the_job_with_the_greater_reward_for_a_gpu_starts(
    single: dict[int, int], first: str
) -> None:
    jobs = [Job(JobId(name), 0.0, Demand(n), tenant="u") for name, n in (("one", 1), ("four", 4))]
    policy = Astraea(order="reward")
    lengths = {1.0: single, 4.0: {0: 10}}
    view = replace(view_of(4, *jobs), memory=AstraeaMemory(0.0, lengths=lengths))

    plan = policy.decide(view)

    assert {job for job, on in plan.changes.items() if on} == {first}


# ---- what always holds


gangs = st.lists(st.sampled_from([1.0, 2.0, 4.0, 8.0]), max_size=6)
parties = st.lists(
    st.tuples(st.floats(0.5, 16), st.floats(0, 16), st.floats(0, 1e6), st.floats(0, 1e6), gangs),
    min_size=1,
    max_size=6,
)


@given(st.integers(0, 40), parties)
def test_no_more_is_granted_than_is_free(free: int, drawn: list[tuple[Any, ...]]) -> None:
    tenants = [AstraeaTenant(str(i), *rest) for i, rest in enumerate(drawn)]
    before = sum(tenant.used for tenant in tenants)

    allowed, grants = grant_quotas(float(free), tenants, 900.0, 0.2)

    granted = sum(grant.gpus for grant in grants)
    assert granted <= free + 1e-9
    assert sum(allowed.values()) == pytest.approx(before + granted)


@given(st.integers(0, 40), parties)
def test_the_order_of_tenants_matters_for_ties_alone(
    free: int, drawn: list[tuple[Any, ...]]
) -> None:
    distinct = [
        (quota, used, had + i, due + 1e6 + 7 * i, wants)
        for i, (quota, used, had, due, wants) in enumerate(drawn)
    ]

    def granted(order: list[int]) -> dict[str, float]:
        tenants = [AstraeaTenant(str(i), *distinct[i][:4], list(distinct[i][4])) for i in order]
        return grant_quotas(float(free), tenants, 900.0, 0.0)[0]

    whole = list(range(len(distinct)))
    forth = granted(whole)
    ratios = [AstraeaTenant("", *fields).ratio for fields in distinct]
    if len(set(ratios)) == len(ratios):
        assert granted(whole[::-1]) == forth


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000))
def test_used_gpu_time_is_what_was_busy_and_tenants_get_their_quota(seed: int) -> None:
    rows = drawn(seed, jobs=20)

    outcome = simulated(rows, 32, "astraea")

    work = sum(gpus * duration for _, _, gpus, _, duration in rows)
    assert outcome.per_job.gpu_s.sum() == pytest.approx(work)


def test_astraea_keeps_the_contract_of_policies() -> None:
    check_contract(Astraea(order="reward", block=False))


# ---- how


def simulated(rows: tuple[Any, ...], gpus: int, spec: str = SIMULATOR) -> Outcome:
    pairs = tuple(
        (Job(JobId(str(n)), float(at), Demand(size), tenant=tenant), Truth(float(length)))
        for n, tenant, size, at, length in rows
    )
    nodes = f"{gpus // 8}x8:v100"
    result = weft.simulate(Trace("x", pairs), find_authors_class(spec), nodes, restart_cost=0.0)
    return result.outcomes[find_authors_class(spec)][0]


def referenced(rows: tuple[Any, ...], gpus: int) -> list[Ref]:
    jobs = [Ref(*row) for row in rows]
    Cluster(gpus, jobs).run()
    return jobs


def drawn(seed: int, jobs: int = 60) -> tuple[Any, ...]:
    """Jobs of three tenants, all of them there from the beginning."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, 4000, size=jobs))
    at[:3] = 0
    return tuple(
        (
            i,
            f"t{i if i < 3 else rng.integers(3)}",
            int(rng.choice([1, 2, 4, 8])),
            int(at[i]),
            float(rng.integers(100, 4000)),
        )
        for i in range(jobs)
    )


def long_term(outcome: Outcome, rows: tuple[Any, ...], gpus: int) -> list[float]:
    """Work over what each job deserved: an equal part of its tenant's quota."""
    quota = gpus / len({tenant for _, tenant, _, _, _ in rows})
    ratios = []
    for i, (_, tenant, size, at, length) in enumerate(rows):
        times = sorted({*outcome.per_job.end_s, *outcome.per_job.submit_s})
        deserved = 0.0
        for begin, end in pairwise(times):
            there = [
                j
                for j, (_, u, _, _, _) in enumerate(rows)
                if u == tenant and outcome.per_job.submit_s[j] <= begin < outcome.per_job.end_s[j]
            ]
            if i in there:
                deserved += (end - begin) * min(size, quota / len(there))
        ratios.append(size * length / deserved)
        assert at <= outcome.per_job.end_s[i]
    return ratios


def ran(view: View, now: float, **seconds: float) -> View:
    """The view later, with jobs that ran so long and wait again."""
    table = view.table.pick(np.ones(len(view.table), dtype=bool))
    for name, length in seconds.items():
        row = table.row(JobId(name))
        table.meters_on(row, 0.0, 1.0)
        table.meters_off(row, length)
    return replace(view, table=table, now=now)


def replace_hours(kept: AstraeaMemory, hours: Any, at: float) -> AstraeaMemory:
    return replace(kept, at=at, hours=hours)


@pytest.mark.parametrize(
    ("starving", "option", "short_s", "count", "end"),
    [
        (900, ":starving=900", 900.0, 8, 6540.0),
        (1800, ":starving=1800", 900.0, 8, 10_980.0),
        (21_600, "", 300.0, 90, 40_680.0),
    ],
)
def test_who_waits_for_the_threshold_goes_before_the_less_served(
    starving: int, option: str, short_s: float, count: int, end: float
) -> None:
    # A long job, and short ones that come for ever: each new one has had nothing and goes first,
    # until the long one has waited for the threshold, which is six hours by default.
    short = [(i, "u", 8, 300 * i, short_s) for i in range(1, count + 1)]
    rows = ((0, "u", 8, 0, 3000.0), *short)
    jobs = [Ref(*row) for row in rows]
    Cluster(8, jobs, starving=starving).run()

    ends = simulated(rows, 8, SIMULATOR + option).per_job.end_s.tolist()

    assert ends == pytest.approx([job.end for job in jobs])
    assert ends[0] == pytest.approx(end)


def test_of_tenants_that_hold_nothing_the_one_that_had_less_is_next() -> None:
    tenants = [
        AstraeaTenant("a", 0.5, 0.0, 900.0, 900.0, [1.0]),
        AstraeaTenant("b", 0.5, 0.0, 0.0, 900.0, [1.0]),
    ]

    assert [grant.tenant for grant in grant_quotas(1.0, tenants, 300.0, 0.2)[1]] == ["a"]
    assert [
        grant.tenant for grant in grant_quotas(1.0, tenants, 300.0, 0.2, in_order=False)[1]
    ] == ["b"]
