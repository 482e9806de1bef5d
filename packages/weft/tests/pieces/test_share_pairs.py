"""Two jobs on the same devices: who may, who gains, and what they are given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.core.events.event import Decided, Started
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import EXCLUSIVE, Allocation, Config, Demand, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.state import State
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered, profile_of
from weft.perf.throughputs import ThroughputBeliefs, Throughputs
from weft.pieces.share import pair_choices
from weft.pieces.share.pair_choices import share_devices
from weft.pieces.share.partners import find_partners
from weft.pieces.size.change_seconds import Worth
from weft.policies.weft.policy import Weft
from weft.solve.multiple_choice import Answer
from weft.testing import view_of
from weft.testing.build import with_knowledge

SHARES = Weft(share=True)


def job(name: str, model: str = "resnet18-cifar", **more: object) -> Job:
    given: dict[str, object] = {"hints": {"batch": 512.0, "duration_s": 900.0}, **more}
    return Job(JobId(name), model=model, **given)  # type: ignore[arg-type]


def view(*jobs: Job, cluster: str = "1x1:h200") -> View:
    return with_knowledge(view_of(cluster, *jobs), colocation=Colocated(profile_of, Unordered()))


def follow(before: View, plan: Plan) -> View:
    """The view once the jobs of a plan run."""
    state = State(before.cluster)
    state.table = before.table
    state.fold(before.now, Decided(1, dict(plan.changes), {}, plan.wake_at))
    for row, on in enumerate(state.table.allocations):
        if on is not None:
            state.fold(before.now, Started(before.job(row).id, 1))
    return replace(before, free=state.free, memory=plan.memory)


def given(plan: Plan, name: str) -> Allocation | None:
    return plan.changes.get(JobId(name))


def test_two_that_gain_share_a_gpu_and_are_told_what_to_expect() -> None:
    plan = SHARES.decide(view(job("a"), job("b")))

    a, b = given(plan, "a"), given(plan, "b")
    assert a is not None
    assert b is not None
    assert a.devices == b.devices
    assert a.sharing.share == b.sharing.share == 0.5
    assert "shares its devices with b" in plan.reasons[JobId("a")]
    assert plan.numbers["pairs"] == 1.0
    assert plan.numbers["gap"] == 0.0  # no more than this was to be had, with or without pairs


@pytest.mark.parametrize(
    "other",
    [
        job("b", shareable=False),
        job("b", preemptible=False),
        job("b", demand=Demand(1, share=0.5)),
        job("b", model="nobody-knows"),
    ],
    ids=["its submitter rules it out", "it may not be stopped", "part of a GPU", "unknown memory"],
)
def test_who_may_not_share_or_is_not_known_does_not(other: Job) -> None:
    plan = SHARES.decide(view(job("a"), other))

    assert len([on for on in plan.changes.values() if on is not None]) == 1
    assert "pairs" not in plan.numbers


def test_two_that_do_not_fit_into_memory_do_not_share() -> None:
    small = "1x1:t4"
    large = {"hints": {"batch": 32.0, "duration_s": 900.0}}

    plan = SHARES.decide(view(job("a", "gpt2", **large), job("b", "gpt2", **large), cluster=small))

    assert len([on for on in plan.changes.values() if on is not None]) == 1


@pytest.mark.parametrize(("smallest_gb", "pairs"), [(141.0, 1), (1.0, 0)])
def test_two_share_only_what_fits_on_the_smallest_device_of_a_kind(
    smallest_gb: float, pairs: int
) -> None:
    cluster = parse_cluster("2x1:h200")
    small = replace(cluster.nodes[0], gpu_mem_gb=smallest_gb)
    jobs = [job(name) for name in "abc"]
    uneven = replace(cluster, nodes=(small, cluster.nodes[1]))
    colocation = Colocated(profile_of, Unordered())

    plan = SHARES.decide(with_knowledge(view_of(uneven, *jobs), colocation=colocation))

    assert plan.numbers.get("pairs", 0.0) == pairs


@pytest.mark.parametrize(("together", "pairs"), [(0.4, 0), (0.7, 1)])
def test_measured_speeds_decide_who_shares(together: float, pairs: int) -> None:
    # Two that do 0.4 of their speed beside each other do less together than one alone.
    key = ("resnet18-cifar", 1)
    both = (2.0 * together, 2.0 * together)
    table = Throughputs({"h200": {key: 2.0}}, {"h200": {(key, key): both}})
    before = with_knowledge(view(job("a"), job("b")), beliefs=ThroughputBeliefs(table))

    plan = SHARES.decide(before)

    assert plan.numbers.get("pairs", 0.0) == pairs


@pytest.mark.parametrize(("asked", "pairs"), [(1, 0), (2, 1)])
def test_pairs_are_believed_on_as_many_gpus_as_they_were_measured_on(
    asked: int, pairs: int
) -> None:
    # "a" may have both GPUs, where it is quicker; "b" has measured speeds beside it there only if
    # "a" asked for two as well.
    alone = {("resnet18-cifar", 1): 2.0, ("resnet18-cifar", 2): 3.9}
    both = {(a, b): (0.7 * alone[a], 0.7 * alone[b]) for a in alone for b in alone}
    table = Throughputs({"h200": alone}, {"h200": both})
    jobs = (job("a", demand=Demand(asked, asked, 2)), job("b", demand=Demand(2)))
    before = view(*jobs, cluster="1x2:h200")

    plan = SHARES.decide(with_knowledge(before, beliefs=ThroughputBeliefs(table)))

    assert plan.numbers.get("pairs", 0.0) == pairs


def test_who_is_left_has_all_of_its_devices_again_where_it_is() -> None:
    before = view(job("a"), job("b"))
    running = follow(before, SHARES.decide(before))
    left = running.without(np.array([False, True]))
    gone = running.allocation(1)
    assert gone is not None
    left.free.give(gone)

    plan = SHARES.decide(left)

    a = given(plan, "a")
    assert a is not None
    assert a.devices == gone.devices
    assert a.sharing == EXCLUSIVE


def test_a_partner_that_is_not_shown_keeps_its_part() -> None:
    before = view(job("a"), job("b"))
    running = follow(before, SHARES.decide(before))

    half = running.without(np.array([False, True]))

    assert find_partners(half, np.ones(1)).crowded == {0}
    assert given(SHARES.decide(half), "a") is None


def test_without_sharing_nothing_of_it_is_declared_or_done() -> None:
    plan = Weft().decide(view(job("a"), job("b")))

    assert [on.sharing for on in plan.changes.values() if on is not None] == [EXCLUSIVE]
    assert Weft().about.controls & SHARES.about.controls == Weft().about.controls


def test_pairs_that_run_are_kept_however_few_newcomers_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair_choices, "FOLLOWERS", 2)
    now = view(*(job(f"j{i}") for i in range(14)), cluster="1x8:h200")
    stopped = []

    for _ in range(3):
        plan = SHARES.decide(now)
        stopped += [name for name, on in plan.changes.items() if on is None]
        now = follow(now, plan)

    assert plan.numbers["pairs"] > 4  # as many as two looks at newcomers find
    assert not stopped


def test_jobs_of_unknown_length_do_not_take_turns_with_every_minute_they_run() -> None:
    def unknown(name: str) -> Job:
        return Job(JobId(name), shareable=False)

    before = view(unknown("a"), unknown("b"))
    running = follow(before, SHARES.decide(before))
    first = next(row for row in range(2) if running.allocation(row) is not None)
    running.table.set(1 - first, TableColumns.SERVICE_BASE, 1100.0)
    stopped = []

    for service in range(1000, 1900, 60):
        running.table.set(first, TableColumns.SERVICE_BASE, float(service))
        stopped += [name for name, on in SHARES.decide(running).changes.items() if on is None]

    assert not stopped


def test_a_newcomer_moves_none_of_those_who_share_where_that_gains_less() -> None:
    def sharing(name: str, model: str, batch: float, seconds: float = 2400.0) -> Job:
        return job(name, model, hints={"batch": batch, "duration_s": seconds})

    jobs = (
        sharing("a", "mobilenet_v3", 64.0),
        sharing("b", "mobilenet_v3", 64.0),
        sharing("c", "resnet50", 32.0, 1200.0),
        sharing("d", "resnet18-cifar", 512.0),
    )
    before = view(*jobs, cluster="1x2:h200")
    first = SHARES.decide(before)
    held = follow(before, first).held()
    assert 0.5 in {on.sharing.share for on in held.values()}
    more = view(*jobs, sharing("late", "lstm", 16.0), cluster="1x2:h200")
    now = follow(more, replace(first, changes=held))

    after = now.after(SHARES.decide(now))

    assert {name: after[name].devices for name in held} == {n: on.devices for n, on in held.items()}


def test_a_guest_that_the_program_gives_its_smallest_size_leaves_its_host() -> None:
    # Together they are worth 1.52, apart 1.1: that is for the program of present pairs to say, and
    # it finds nothing here. The answer of sizes alone is attached to, not undone.
    before = view(job("a"), job("b"))
    running = follow(before, SHARES.decide(before)).held()
    now = follow(view(job("a"), job("b"), cluster="1x2:h200"), Plan(running))
    partners = find_partners(now, np.ones(2))
    assert partners.second == {0: 1}
    together, alone = (_worth_of(1.0, guest) for guest in (1.0, 0.1))
    apart = Answer(np.array([0, 0]), 1.1, 1.1, np.zeros(1))
    nothing = Answer(np.array([-1, -1]), 0.0, 0.0, np.zeros(1))
    sizes = (Config("h200", 1, 1),)
    improve = share_devices(now, sizes, together, alone, np.zeros(2), partners)

    shared = improve(apart, lambda _: nothing)

    assert shared.pairs == ()
    assert shared.answer.value == apart.value


def _worth_of(*rows: float) -> Worth:
    value = np.array(rows)[:, None]
    free = np.zeros_like(value)
    return Worth(value, np.ones_like(value), np.ones(len(rows)), free, free, free)
