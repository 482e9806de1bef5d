"""Themis (NSDI 2020): finish-time fairness, partial allocation, the filter, and whole apps."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cheap import check_contract

import weft
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.testing import view_of
from weft_papers.themis.apps import App, AppJob, Crowd, rank_apps
from weft_papers.themis.policy import Themis, ThemisMemory, count_participants, divide, useful_share

NOW, CLUSTER = 1800.0, 8
HOUR = {"duration_s": 3600.0}


def app(name: str, arrived: float, left: int, total: int, serial_s: float, most: int) -> App:
    job = Job(JobId(name), arrived, Demand(most, min=1, max=most))
    member = AppJob(job, left * serial_s / most)
    return App(name, (member,), arrived, 3.0, (total - left) * serial_s)


A = app("A", 0.0, 1000, 1000, 8.0, 4)
B = app("B", 0.0, 300, 900, 4.0, 4)
C = app("C", 1200.0, 500, 500, 4.0, 8)


# ---- the worked examples


@pytest.mark.parametrize(
    ("app", "expected"),
    [(A, (1.6333, 0.9667, 0.6333)), (B, (1.1111, 0.8889, 0.7778)), (C, (3.4667, 2.1333, 1.4667))],
)
def test_finish_time_fairness_by_gpus(app: App, expected: tuple[float, ...]) -> None:
    rhos = [app.rho(gpus, CLUSTER, NOW) for gpus in (1, 2, 4)]

    assert rhos == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("app", "expected"), [(A, (1.3, 0.8)), (B, (1.0, 0.8333)), (C, (2.8, 1.8))]
)
def test_gpus_of_several_nodes_are_worth_less(app: App, expected: tuple[float, ...]) -> None:
    rhos = [app.rho(gpus, CLUSTER, NOW, slowdown=1.5) for gpus in (2, 4)]
    bids = app.bids(4, CLUSTER, NOW, node=1, slowdown=1.5)

    assert rhos == pytest.approx(expected, abs=5e-5)
    assert [1.0 / bids[n] for n in (2, 4)] == pytest.approx(rhos)
    assert 1.0 / bids[1] == pytest.approx(app.rho(1, CLUSTER, NOW))


def test_an_auction_of_eight_gpus() -> None:
    sizes, parts = divide(8, [app.bids(8, CLUSTER, NOW) for app in (A, B, C)])

    values = [1.0 / app.rho(n, CLUSTER, NOW) for app, n in zip((A, B, C), sizes, strict=True)]
    kept = [useful_share(n, c, range(9)) for n, c in zip(sizes, parts, strict=True)]
    assert sizes == [3, 2, 3]
    assert prod(values) == pytest.approx(0.8947859)
    assert parts == pytest.approx([0.7236842, 0.7388060, 0.7444030])
    assert kept == [2, 1, 2]


def test_equal_bidders_pay_half_unless_one_cannot_use_more() -> None:
    linear = {n: float(n) for n in range(1, 5)}
    few = {n: float(n) for n in (1, 2)}

    for bids, expected in (([linear, linear], [0.5, 0.5]), ([few, linear], [0.5, 1.0])):
        sizes, parts = divide(4, bids)
        assert sizes == [2, 2]
        assert parts == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bidders", "part"), [(2, 0.5), (3, 0.4444), (4, 0.4219), (10, 0.3874), (30, 0.3741)]
)
def test_equal_divisible_bidders_keep_more_than_one_part_in_e(bidders: int, part: float) -> None:
    linear = {n: float(n) for n in range(1, 12 * (bidders - 1) + 1)}
    each = 2 * (bidders - 1) if bidders <= 10 else bidders - 1

    _, parts = divide(each * bidders, [linear] * bidders)

    assert parts == pytest.approx([part] * bidders, abs=2e-4)


def test_the_worst_fifth_of_ten_apps_takes_part() -> None:
    assert count_participants(10, 0.8) == 2
    assert count_participants(3, 0.0) == 3
    assert count_participants(3, 0.99) == 1


# ---- invariants

BIDS = st.lists(
    st.dictionaries(st.integers(1, 5), st.floats(0.05, 20.0), min_size=1), min_size=1, max_size=4
)


@example([{2: 13.5}, {1: 19.0}], 2)  # the worst-off is the first, and served
@given(BIDS, st.integers(1, 8))
def test_the_division_maximises_the_product_and_payments_are_parts(
    bids: list[dict[int, float]], offer: int
) -> None:
    sizes, parts = divide(offer, bids)

    def worth(choice: tuple[int, ...]) -> float:
        return prod(bid.get(n, 1e-9) for bid, n in zip(bids, choice, strict=True))

    every = product(*[[0, *bid] for bid in bids])
    fit = [choice for choice in every if sum(choice) <= offer]
    best = max(worth(choice) for choice in fit if choice[0] or min(bids[0]) > offer)
    assert sum(sizes) <= offer
    assert worth(tuple(sizes)) == pytest.approx(best)
    assert all(0.0 < part <= 1.0 for part in parts)


@given(BIDS, st.integers(1, 8), st.floats(0.1, 10.0))
def test_scaling_the_bids_of_one_app_changes_no_payment(
    bids: list[dict[int, float]], offer: int, factor: float
) -> None:
    scaled = [{n: v * factor for n, v in bids[0].items()}, *bids[1:]]
    if any(v * factor < 1e-6 for v in bids[0].values()):
        return

    first, second = divide(offer, bids), divide(offer, scaled)

    if first[0] == second[0] and all(first[0]):
        assert first[1] == pytest.approx(second[1], rel=1e-6)


def test_a_winner_keeps_whole_gangs() -> None:
    assert useful_share(8, 0.6, [0, 4, 8]) == 4
    assert useful_share(8, 0.3, [0, 4, 8]) == 4
    assert useful_share(3, 0.99, [0, 1, 2, 3]) == 2


def test_the_crowd_is_averaged_over_the_life_of_an_app() -> None:
    crowd = Crowd().advance(0.0, ["a"]).advance(10.0, ["a", "b"]).advance(30.0, ["a", "b"])

    assert crowd.average("a", 0.0) == pytest.approx((10 * 1 + 20 * 2) / 30)
    assert crowd.average("b", 10.0) == pytest.approx(2.0)
    brief = Crowd().advance(0.0, ["a", "b", "c"]).advance(0.3, ["a"])
    assert brief.average("a", 0.0) == pytest.approx(3.0)


def test_gpus_of_an_app_go_to_its_longest_jobs_whole_gangs_first() -> None:
    jobs = tuple(
        AppJob(Job(JobId(name), demand=Demand(gpus, min=least, max=gpus)), left)
        for name, gpus, least, left in (("short", 2, 2, 10.0), ("long", 4, 2, 90.0))
    )
    search = App("search", jobs, 0.0, 1.0)

    assert search.useful(6) == [0, 2, 3, 4, 5, 6]
    assert search.split(5) == {"long": 3, "short": 2}
    assert search.split(3) == {"long": 3}
    assert search.split(7) == {"long": 4, "short": 2}  # and one that nobody can use


def test_themis_keeps_the_contract_of_policies() -> None:
    check_contract(Themis(f=0.0))


def test_a_filter_that_hides_from_everybody_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="f=1"):
        Themis(f=1.0)


def test_the_jobs_of_an_app_share_its_fairness() -> None:
    # One search of eight jobs and eight lone jobs of the same size on four GPUs: by jobs the
    # search would get half of the cluster, as one app among nine it ends last.
    jobs = [
        *((Job(JobId(f"s{i}"), app="search"), Truth(600.0)) for i in range(8)),
        *((Job(JobId(f"l{i}")), Truth(600.0)) for i in range(8)),
    ]

    result = weft.simulate(Trace("apps", tuple(jobs)), Themis(f=0.0, lease=120.0), "1x4:v100")

    (outcome,) = result.outcomes["themis"]
    ends = dict(zip(outcome.per_job.id, outcome.per_job.end_s.tolist(), strict=True))
    lone = sum(ends[f"l{i}"] for i in range(8)) / 8
    search = sum(ends[f"s{i}"] for i in range(8)) / 8
    assert lone < search


def ends_of(jobs: list[tuple[Job, Truth]], policy: Themis) -> dict[str, float]:
    result = weft.simulate(Trace("apps", tuple(jobs)), policy, "1x8:v100")
    (outcome,) = result.outcomes["themis"]
    return dict(zip(outcome.per_job.id, outcome.per_job.end_s.tolist(), strict=True))


@pytest.mark.parametrize("f", [0.0, 0.8])
def test_who_is_left_alone_gets_every_gpu_that_it_can_use(f: float) -> None:
    # Eight apps on 1 to 8 of 8 GPUs; the long one is 144,000 s on one GPU, 18,000 s on eight.
    demand = Demand(8, min=1, max=8)
    jobs = [(Job(JobId(f"short{i}"), demand=demand), Truth(100.0)) for i in range(7)]
    jobs.insert(0, (Job(JobId("long"), demand=demand), Truth(18_000.0)))

    ends = ends_of(jobs, Themis(f=f))

    assert ends["long"] < 1.3 * (18_000.0 + 7 * 100.0)


def test_a_running_app_bids_for_what_it_could_use_beside_what_it_holds() -> None:
    job = Job(JobId("a"), demand=Demand(4, min=2, max=6))
    held = App("a", (AppJob(job, 100.0, holds=4),), 0.0, 2.0)
    firm = Job(JobId("b"), demand=Demand(4, min=2, max=6), preemptible=False)

    assert held.useful(8) == [0, 1, 2]
    assert held.split(2) == {"a": 6}
    assert held.bids(8, CLUSTER, 50.0).keys() == {1, 2}
    assert held.can_use(1)
    assert not App("b", (AppJob(firm, 100.0, holds=4),), 0.0, 2.0).can_use(8)


def test_what_winners_pay_goes_to_who_can_use_it_at_once() -> None:
    # Two equal bidders pay half of what they win: nobody waits, and no GPU may idle.
    demand = Demand(8, min=1, max=8)
    view = view_of(8, *(Job(JobId(name), demand=demand, hints=HOUR) for name in ("a", "b")))

    held = view.after(Themis(f=0.0).decide(view))

    assert sum(on.gpus for on in held.values()) == 8


def test_nobody_bids_for_more_than_a_node_where_that_is_four_times_as_slow() -> None:
    # Two of three apps see 12 GPUs: they win 6 each and pay half; or a node each, which costs the
    # other nothing, so that less is left over for the third.
    demand = Demand(12, min=1, max=12)
    jobs = [Job(JobId(name), demand=demand, hints=HOUR) for name in "abc"]

    held = []
    for spread in (1.0, 4.0):
        view = view_of("3x4:v100", *jobs)
        held.append(view.after(Themis(f=0.4, spread=spread).decide(view)))

    assert [[on.gpus for on in allocations.values()] for allocations in held] == [
        [5, 4, 3],
        [5, 5, 2],
    ]


def test_the_worst_off_bidder_is_not_outweighed_by_many_others() -> None:
    gang, small = {8: 0.001}, {1: 1.0, 2: 2.0}

    sizes, _ = divide(8, [gang, small, small, small])

    assert sizes == [8, 0, 0, 0]


def test_a_gang_of_all_gpus_starts_while_small_jobs_keep_coming() -> None:
    rows = [(Job(JobId("gang"), 3_600.0, Demand(8)), Truth(3_600.0))]
    rows += [(Job(JobId(f"j{i}"), 600.0 * i, Demand(1)), Truth(7_000.0)) for i in range(120)]
    rows.sort(key=lambda row: row[0].submitted)

    outcome = weft.simulate(Trace("mix", tuple(rows)), "themis", "1x8:v100").outcomes["themis"][0]

    row = [*outcome.per_job.id].index("gang")
    assert outcome.per_job.end_s[row] < 12 * 3_600.0  # it ended after 31 hours


@pytest.mark.parametrize("over", [True, False])
def test_leases_end_for_who_runs_and_could_use_more(over: bool) -> None:
    # Nobody waits; one has 7 GPUs and the other 1. The leases end at 100 s.
    state = State(parse_cluster("1x8:v100"))
    for name, mask in (("rich", 0b1111111), ("poor", 0b10000000)):
        job = Job(JobId(name), demand=Demand(8, min=1, max=8), hints=HOUR)
        state.fold(0.0, Submitted(job))
        state.fold(0.0, Decided(1, {job.id: Allocation((state.free.slice_of(0, mask),))}))
    known = view_of(8, *state.table.jobs).knowledge
    ends = {JobId("rich"): 100.0, JobId("poor"): 100.0}
    memory = ThemisMemory(ends, Crowd().advance(0.0, ["job rich", "job poor"]))
    now = 100.0 if over else 50.0
    view = View(now, state.table, state.cluster, state.free, known, memory=memory)

    plan = Themis(f=0.0).decide(view)

    assert (view.after(plan)[JobId("poor")].gpus > 1) is over
    assert plan.wake_at == (Themis().lease if over else 100.0)


def test_the_crowd_at_first_is_the_present_one() -> None:
    crowd = Crowd().advance(5.0, ["a", "b"])

    assert crowd.average("a", 5.0) == 2.0
    assert crowd.advance(15.0, ["a"]).average("a", 5.0) == 2.0


def test_a_slowdown_below_one_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="spread"):
        Themis(spread=0.5)
    assert Themis(lease=1.0).lease == 1.0


@pytest.mark.parametrize(("f", "winners"), [(0.0, {"old", "new"}), (0.5, {"old"})])
def test_only_the_worst_part_of_apps_bids(f: float, winners: set[str]) -> None:
    # Both could use all eight GPUs. If the older one, which is worse off, bids alone, it has them.
    demand = Demand(8, min=1, max=8)
    jobs = [
        Job(JobId(name), at, demand, hints=HOUR) for name, at in (("old", 0.0), ("new", 7000.0))
    ]
    view = view_of(8, *jobs, now=7200.0)

    held = view.after(Themis(f=f).decide(view))

    assert set(held) == winners
    assert sum(on.gpus for on in held.values()) == 8


def test_short_jobs_do_not_wait_for_long_ones_to_end() -> None:
    """Whoever held GPUs last and came first does not win every auction again."""
    long = [(Job(JobId(f"l{i}"), 0.0, Demand(1)), Truth(40_000.0)) for i in range(4)]
    short = [(Job(JobId(f"s{i}"), 10.0, Demand(1)), Truth(300.0)) for i in range(20)]
    trace = Trace("short behind long", (*long, *short))

    for spec in ("themis", "compose:order=themis,admit=preempt"):
        outcome = weft.simulate(trace, spec, "1x4:v100").outcomes[spec][0]

        assert outcome.per_job.start_s.max() <= 4 * Themis().lease
        assert outcome.metrics["worst_ftf"] < 3.0


def test_apps_without_gpus_go_by_what_their_least_gang_would_give() -> None:
    holds = replace(A, members=(replace(A.members[0], holds=1),))

    ranked = rank_apps([holds, B, A, C], CLUSTER, NOW)

    assert [app.name for app in ranked] == ["C", "A", "B", "A"]
    assert [app.held_gpus for app in ranked] == [0, 0, 0, 1]
    assert C.least_rho(CLUSTER, NOW) == pytest.approx(3.4667, abs=5e-5)
