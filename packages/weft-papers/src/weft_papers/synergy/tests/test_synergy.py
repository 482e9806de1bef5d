"""The worked examples of Synergy (OSDI 2022) on its published tables, and its invariants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cheap import check_contract

import weft
from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Sensitivity
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Demand, Job, JobId, NodeId
from weft.core.model.trace import Trace, Truth
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.hinted_profile import profile_of
from weft.perf.sharing.host import load_shipped, read_tables
from weft.testing import view_of, with_knowledge
from weft_papers.synergy.policy import Synergy, solve_optimal, super_server
from weft_papers.synergy.servers import Allotment, RoundJob, SynergyServer
from weft_papers.synergy.tune import greedy, proportional, redistribute, tune

ONE = "res18 alexnet gnmt transformer lstm mobilenet res50 deepspeech"
TWO = "gnmt lstm transformer res50 deepspeech mobilenet alexnet res18"
THREE = "m5 shufflenet gnmt gnmt lstm lstm transformer transformer"
FOUR = "res18 res18 gnmt lstm"
BIG, SMALL = SynergyServer(8, 24.0, 500.0), SynergyServer(4, 12.0, 250.0)
Mechanism = Callable[[Allotment], None]


def filled(allotment: Allotment) -> None:
    tune(allotment)
    redistribute(allotment)


@pytest.fixture(scope="module")
def tables(data: Callable[[str], Path]) -> dict[str, Sensitivity]:
    return read_tables(data("synergy"))


@pytest.mark.parametrize(
    ("jobs", "server", "mechanism", "total", "idle_cores"),
    [
        (ONE, BIG, proportional, 8.0, 0),
        (ONE, BIG, greedy, 8.34, 0),
        (ONE, BIG, tune, 8.15, 5),
        (ONE, BIG, solve_optimal, 9.58, 0),
        (ONE, BIG, filled, 9.58, 0),
        (TWO, BIG, greedy, 6.70, 8),
        (TWO, BIG, tune, 8.70, 2),
        (TWO, BIG, solve_optimal, 9.58, 0),
        (THREE, BIG, greedy, 11.39, 0),
        (THREE, BIG, tune, 11.39, 0),
        (THREE, BIG, solve_optimal, 11.39, 0),
        (FOUR, SMALL, proportional, 4.0, 0),
        (FOUR, SMALL, greedy, 4.4, 1),
        (FOUR, SMALL, tune, 4.0, 4),
        (FOUR, SMALL, solve_optimal, 5.06, 0),
        (FOUR, SMALL, filled, 5.06, 0),
    ],
)
def test_worked_examples_on_one_server(
    tables: dict[str, Sensitivity],
    jobs: str,
    server: SynergyServer,
    mechanism: Mechanism,
    total: float,
    idle_cores: int,
) -> None:
    allotment = Allotment([server], [RoundJob(1, tables[name]) for name in jobs.split()])

    mechanism(allotment)

    assert allotment.total() == pytest.approx(total)
    assert allotment.cpus[0] == pytest.approx(idle_cores)


def test_greedy_skips_what_does_not_fit_and_tune_sends_the_rich_back(
    tables: dict[str, Sensitivity],
) -> None:
    wants = [RoundJob(1, tables[name]) for name in ONE.split()]
    skipping, reverting = Allotment([BIG], wants), Allotment([BIG], wants)

    greedy(skipping)
    tune(reverting)

    assert sorted(skipping.grants) == [0, 1, 2, 3, 4]
    assert len(reverting.grants) == 8
    assert reverting.grants[1].cpus == reverting.grants[0].cpus == 3.0


def test_replicated_servers_and_jobs_scale_the_optimum(tables: dict[str, Sensitivity]) -> None:
    wants = [RoundJob(1, tables[name]) for name in ONE.split()]

    three = super_server(Allotment([BIG] * 3, wants * 3))

    assert sum(point.speed for point in three.values()) == pytest.approx(3 * 9.58)


models = st.sampled_from(sorted(load_shipped()))
rounds = st.lists(st.tuples(st.sampled_from([1, 1, 2, 4]), models), min_size=1, max_size=12)


def racked(round_: list[tuple[int, str]], count: int) -> Allotment:
    """Jobs whose GPUs fit on so many servers; some of them run already, on the first with room."""
    left, wants, room = 8 * count, [], [8] * count
    for number, (gpus, model) in enumerate(round_):
        if gpus > left:
            continue
        left -= gpus
        at = next((s for s in range(count) if room[s] >= gpus), None) if number % 2 else None
        if at is not None:
            room[at] -= gpus
        wants.append(RoundJob(gpus, load_shipped()[model], () if at is None else ((at, gpus),)))
    return Allotment([BIG] * count, wants)


@settings(deadline=None)
@given(
    rounds, st.integers(1, 3), st.sampled_from([greedy, tune, solve_optimal, filled, proportional])
)
def test_no_server_promises_more_than_it_has(
    round_: list[tuple[int, str]], count: int, mechanism: Mechanism
) -> None:
    allotment = racked(round_, count)

    mechanism(allotment)

    used = [[0.0, 0.0, 0.0] for _ in range(count)]
    for number, grant in allotment.grants.items():
        assert grant.gpus == allotment.wants[number].gpus
        for server, here in grant.parts:
            used[server][0] += here
            used[server][1] += here * grant.cpus
            used[server][2] += here * grant.mem_gb
    for gpus, cpus, mem_gb in used:
        assert gpus <= 8.0
        assert cpus <= 24.0 + 1e-4
        assert mem_gb <= 500.0 + 1e-3


@settings(deadline=None)
@given(rounds, st.integers(1, 3), st.sampled_from([tune, solve_optimal, filled]))
def test_nobody_is_skipped_or_slower_than_its_share(
    round_: list[tuple[int, str]], count: int, mechanism: Mechanism
) -> None:
    allotment = racked(round_, count)

    mechanism(allotment)

    assert len(allotment.grants) == len(allotment.wants)
    for number, grant in allotment.grants.items():
        fair = allotment.speed(number, *allotment.fair)
        assert allotment.speed(number, grant.cpus, grant.mem_gb) >= fair - 1e-6


@settings(deadline=None)
@given(rounds, st.integers(1, 3))
def test_tune_lies_between_proportion_and_the_bound_and_filling_helps(
    round_: list[tuple[int, str]], count: int
) -> None:
    fair, tuned, full = (racked(round_, count) for _ in range(3))
    proportional(fair)
    tune(tuned)
    filled(full)
    bound = sum(point.speed for point in super_server(racked(round_, count)).values())

    assert fair.total() <= tuned.total() + 1e-6
    assert tuned.total() <= full.total() + 1e-6
    assert full.total() <= bound + 1e-3


@given(st.lists(st.sampled_from(["gnmt", "lstm", "bert"]), min_size=1, max_size=8))
def test_language_models_leave_the_host_to_others(names: list[str]) -> None:
    allotment = Allotment([BIG], [RoundJob(1, load_shipped()[name]) for name in names])

    tune(allotment)

    assert allotment.total() == pytest.approx(len(names))
    assert all(grant.cpus == 1.0 for grant in allotment.grants.values())


# ---- the policy


def test_orders_put_the_right_job_first() -> None:
    early = Job(JobId("early"), 0.0, Demand(8), hints={"duration_s": 9000.0})
    short = Job(JobId("short"), 0.0, Demand(8), hints={"duration_s": 60.0})
    view = view_of(8, early, short)

    assert set(view.after(Synergy(order="fifo").decide(view))) == {"early"}
    assert set(view.after(Synergy(order="srtf").decide(view))) == {"short"}
    late = view_of(8, early, short, now=0.0)
    assert set(late.after(Synergy(order="ftf").decide(late))) == {"early"}


def test_what_is_left_is_counted_at_the_speed_of_all_that_a_job_wants_of_a_host() -> None:
    twice = Sensitivity((3.0, 12.0), (62.5,), ((1.0,), (2.0,)))
    jobs = [
        Job(JobId(name), 0.0, Demand(8), hints={"duration_s": left_s})
        for name, left_s in (("plain", 100.0), ("hungry", 150.0))
    ]
    use = Colocated(profile_of, sensitivity=lambda job: twice if job.id == "hungry" else None)
    view = with_knowledge(view_of(8, *jobs), colocation=use)

    held = [
        set(view.after(Synergy(order="srtf", mechanism=how).decide(view)))
        for how in ("tune", "proportional")
    ]

    assert held == [{"hungry"}, {"plain"}]


def test_a_job_that_goes_on_is_tuned_in_place(tmp_path: Path) -> None:
    hungry = Job(JobId("a"), 0.0, Demand(1), model="res18")
    others = [Job(JobId(f"b{i}"), 600.0, Demand(1), model="deepspeech") for i in range(7)]
    trace = Trace("t", tuple((job, Truth(3000.0)) for job in (hungry, *others)))
    cluster = tmp_path / "c.yaml"
    cluster.write_text("nodes: [{count: 1, gpus: 8, kind: v100, cpus: 24, mem_gb: 500}]")

    outcome = weft.simulate(trace, Synergy(), str(cluster)).outcomes["synergy"][0]

    # 600 s at what all the cores it can use give it, the rest at its share.
    top = max(map(max, load_shipped()["res18"].speeds))
    assert outcome.per_job.end_s[0] == pytest.approx(600.0 + 3000.0 - 600.0 * top)
    assert outcome.per_job.restarts.sum() == 0


def test_large_gangs_get_the_cores_that_they_want_before_single_gpus_do() -> None:
    # 24 cores: gnmt takes 1 for each of 4 GPUs, mobilenet 6 for each of 2. Of the 8 that are left,
    # neither resnet gets the 9 that it wants: both get their share of 3. The other way round the
    # first two would have 9, and mobilenet no more than its share.
    asked = {"a": ("res18", 1), "b": ("res18", 1), "gang": ("mobilenet", 2), "text": ("gnmt", 4)}
    jobs = [Job(JobId(n), demand=Demand(gpus), model=model) for n, (model, gpus) in asked.items()]
    shipped = load_shipped()
    use = Colocated(profile_of, sensitivity=lambda job: shipped[job.model])
    cluster = Cluster((Node(NodeId("n"), "v100", 8, 24.0, 500.0),))
    view = with_knowledge(view_of(cluster, *jobs), colocation=use)

    held = view.after(Synergy().decide(view))

    assert {job: sum(p.cpus for p in on.slices) for job, on in held.items()} == pytest.approx(
        {"a": 3.0, "b": 3.0, "gang": 12.0, "text": 4.0}
    )


def test_a_round_has_a_length() -> None:
    with pytest.raises(InvalidConfig, match="round=0"):
        Synergy(round=0.0)


@pytest.mark.parametrize(
    "policy",
    [
        Synergy(order="fifo", mechanism="greedy"),
        Synergy(order="srtf", mechanism="opt", round=600.0),
        Synergy(order="ftf", mechanism="proportional", stay=False),
        Synergy(fill=True),
    ],
)
def test_every_mechanism_keeps_the_contract(policy: Synergy) -> None:
    check_contract(policy)
