"""Devices that are kept: for a tenant, for maintenance, drained one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker
from weft.core.plan.rules import check_plan
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.core.state.state import State
from weft.frozen import frozen
from weft.pieces.wrap.tenants.reserve import Reserve
from weft.policies.fifo import Fifo
from weft.predict.hinted import Hinted
from weft.stack.windows import read_window

A, B = JobId("a"), JobId("b")
N0 = "a100-0"


def job(name: JobId, gpus: int, tenant: str = "x", limit: float = 0.0, firm: bool = False) -> Job:
    launch = Launch(("true",), time_limit_s=limit)
    return Job(name, demand=Demand(gpus), tenant=tenant, launch=launch, preemptible=not firm)


def view(state: State, now: float = 100.0, memory: object = None) -> View:
    return View(now, state.table, state.cluster, state.free, memory=memory)


def state_of(cluster: str, *jobs: Job, running: int = 0) -> State:
    state = State(parse_cluster(cluster))
    for number, entry in enumerate(jobs):
        state.fold(0.0, Submitted(entry))
        if number < running:
            mark = state.free.mark()
            on = Fifo().decide(view(state)).changes[entry.id]
            state.free.rollback(mark)
            state.fold(0.0, Decided(number + 1, {entry.id: on}))
            state.fold(0.0, Started(entry.id, 1))
    return state


def reserve(*windows: str) -> Reserve:
    return Reserve(Fifo(backfill=True), {f"w{i}": text for i, text in enumerate(windows)})


def devices(on: Allocation | None) -> set[tuple[str, int]]:
    assert on is not None
    return {(part.node, gpu) for part in on.slices for gpu in part.gpus}


@pytest.mark.parametrize("how", ["", "~"])
def test_one_drained_gpu_is_not_used_and_the_rest_of_its_node_is(how: str) -> None:
    state = state_of("1x4:a100", job(A, 3), job(B, 1))

    plan = reserve(f"{how}{N0}:1").decide(view(state))

    assert devices(plan.changes[A]) == {(N0, 0), (N0, 2), (N0, 3)}
    assert plan.blockers == {B: Blocker.RESERVED}
    assert plan.reasons[B] == "waits for 1 GPU; what is free is kept: w0"


def test_who_would_not_fit_on_what_is_kept_either_is_not_told_of_it() -> None:
    state = state_of("1x4:a100", job(A, 2), job(B, 4))

    plan = reserve(f"{N0}:3").decide(view(state))

    assert set(plan.changes) == {A}
    assert B not in plan.blockers


def test_who_is_on_a_drained_gpu_leaves_or_ends_first_as_was_asked() -> None:
    state = state_of("1x4:a100", job(A, 2), running=1)

    hard, soft = (reserve(f"{how}{N0}:0").decide(view(state)) for how in ("", "~"))

    assert devices(hard.changes[A]) == {(N0, 1), (N0, 2)}
    assert soft.changes == {}


def test_who_must_leave_and_finds_no_other_place_is_stopped() -> None:
    state = state_of("1x4:a100", job(A, 4), running=1)

    plan = reserve(f"{N0}:0").decide(view(state))

    assert plan.changes == {A: None}
    assert plan.reasons[A] == "waits for 4 GPUs; what is free is kept: w0"


@pytest.mark.parametrize("inner", ["srtf", "las", "priority|fifo:backfill=true"])
def test_nobody_takes_the_place_of_who_may_stay_on_kept_devices(inner: str) -> None:
    filler = replace(job(A, 4), priority=-1.0, tier=Tier.OPPORTUNISTIC, hints={"duration_s": 900.0})
    short = replace(job(B, 4), hints={"duration_s": 9.0})
    state = state_of("1x4:a100", filler, short, running=1)
    seen = replace(view(state), knowledge=Knowledge(Hinted()))

    policy = Reserve(build("policy", inner), {"w": f"~{N0}"})

    assert policy.decide(seen).changes == {}


def lasting(job: Job, seconds: float) -> Job:
    """The same, of a known length: none of them ends before a window that begins at 300."""
    return replace(job, hints={"duration_s": seconds})


def test_beside_what_is_kept_one_may_take_the_place_of_another() -> None:
    jobs = lasting(job(A, 4), 900.0), lasting(job(B, 4), 400.0)
    seen = replace(view(state_of("2x4:a100", *jobs, running=1)), knowledge=Knowledge(Hinted()))

    plan = Reserve(build("policy", "srtf"), {"w": "a100-1"}).decide(seen)

    assert {name: devices(on) for name, on in seen.after(plan).items()} == {
        B: {(N0, gpu) for gpu in range(4)}
    }


def test_who_would_stay_into_a_window_takes_a_place_beside_it_instead() -> None:
    # The longest of all runs where a window begins soon, for its own tenant: the policy would stop
    # it for "b", which would be there by then and not end in time.
    other, longest = lasting(job(A, 4, limit=800.0), 900.0), JobId("longest")
    own = lasting(job(longest, 4, "blue"), 5000.0)
    short = lasting(job(B, 4, limit=800.0), 400.0)
    state = state_of("2x4:a100", other, own, short, running=2)
    seen = replace(view(state), knowledge=Knowledge(Hinted()))

    plan = Reserve(build("policy", "srtf"), {"w": "a100-1@300-9000=blue"}).decide(seen)

    after = {name: {node for node, _ in devices(on)} for name, on in seen.after(plan).items()}
    assert after == {B: {N0}, longest: {"a100-1"}}


@frozen
class Grow:
    """Gives the first job one GPU more on its node."""

    about = About("grow", "a test", controls=Controls.COUNT)

    def decide(self, view: View) -> Plan:
        on = view.held().get(A)
        if on is None:
            return Plan()
        node = view.cluster.index[on.slices[0].node]
        mask = sum(1 << gpu for gpu in range(on.gpus + 1))
        return Plan({A: Allocation((view.free.slice_of(node, mask),))})


def test_who_may_stay_until_it_ends_may_be_changed_where_it_is() -> None:
    grows = replace(job(A, 1, limit=800.0), demand=Demand(1, 1, 2))
    state = state_of("1x4:a100", grows, running=1)

    def decide(window: str) -> int:
        to = Reserve(Grow(), {"w": window}).decide(view(state)).changes.get(A)
        return 0 if to is None else to.gpus

    assert decide(f"~{N0}@500-") == 2  # it may run to its end there
    assert decide(f"{N0}@500-") == 0  # it has to leave by then


def test_nobody_shares_a_device_that_is_kept() -> None:
    half = replace(job(A, 1), demand=Demand(1, share=0.5))
    state = state_of("1x1:a100", half, replace(half, id=B), running=1)

    assert reserve(f"~{N0}").decide(view(state)).changes == {}


@frozen
class StartsNothing:
    """Leaves every job waiting."""

    about = About("starts nothing", "a test")

    def decide(self, view: View) -> Plan:
        del view
        return Plan()


@pytest.mark.parametrize(("share", "kept"), [(0.6, False), (0.8, True)])
def test_what_is_kept_is_no_reason_beside_a_shared_device_with_room(
    share: float, kept: bool
) -> None:
    quarter = replace(job(A, 1), demand=Demand(1, share=0.25))
    state = state_of("1x2:a100", quarter, running=1)
    ((_, used),) = devices(state.table.allocations[0])
    state.fold(0.0, Submitted(replace(job(B, 1), demand=Demand(1, share=share))))

    plan = Reserve(StartsNothing(), {"w": f"{N0}:{1 - used}"}).decide(view(state))

    assert plan.blockers == ({B: Blocker.RESERVED} if kept else {})


def test_a_window_is_for_its_tenant_alone() -> None:
    state = state_of("1x4:a100", job(A, 4, "red"), job(B, 4, "blue"))

    plan = reserve(f"{N0}@50-500=blue").decide(view(state))

    assert set(plan.changes) == {B}
    assert plan.wake_at == 500.0


def test_before_it_begins_only_who_ends_in_time_is_placed_there_if_that_is_known() -> None:
    for limit, fits in ((50.0, True), (500.0, False), (0.0, True)):
        state = state_of("1x4:a100", job(A, 4, limit=limit))

        plan = reserve(f"{N0}@300-900").decide(view(state))

        assert (A in plan.changes) is fits
        assert plan.wake_at == 300.0


def test_when_it_begins_whoever_is_in_the_way_is_stopped_and_firm_jobs_only_for_maintenance() -> (
    None
):
    state = state_of("1x4:a100", job(A, 4, firm=True), running=1)

    maintenance = reserve(f"{N0}@100-900").decide(view(state))
    for_others = reserve(f"{N0}@100-900=blue").decide(view(state))

    assert maintenance.changes == {A: None}
    assert for_others.changes == {}


def test_what_is_over_is_as_if_it_had_never_been() -> None:
    state = state_of("1x4:a100", job(A, 4))

    plan = reserve(f"{N0}@10-90").decide(view(state))

    assert A in plan.changes
    assert plan.wake_at is None


@pytest.mark.parametrize("text", ["", "n@5-2", "n:", "n:x", "n@a-b"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="w0"):
        reserve(text)


@pytest.mark.parametrize("text", ["n", "n:0,2", "n@5-9", "n@-9=t", "~n:1", "n+m:0@7-"])
def test_a_window_reads_as_it_is_written(text: str) -> None:
    window = read_window("w", text)

    assert read_window("w", window.text) == window


JOBS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 6), st.booleans()), max_size=7)
POLICIES = ["fifo", "las", "tiresias"]


@examples(80)
@given(JOBS, st.sampled_from(POLICIES), st.sampled_from(["a100-0:0,1", "a100-1", "a100-1=a"]))
def test_under_any_policy_nobody_is_placed_where_it_must_not_be(
    jobs: list[tuple[str, int, bool]], policy: str, window: str
) -> None:
    state = State(parse_cluster("2x4:a100"))
    for number, (tenant, gpus, firm) in enumerate(jobs):
        state.fold(0.0, Submitted(job(JobId(f"j{number}"), gpus, tenant, firm=firm)))
    rule = Reserve(build("policy", policy), {"w": window})
    before = state.free.idle_by_kind()

    plan = rule.decide(view(state))

    assert state.free.idle_by_kind() == before
    check_plan(view(state), plan, rule.about)
    kept = read_window("w", window)
    for name, to in plan.changes.items():
        mine = state.table.jobs[state.table.row(name)].tenant == kept.tenant
        assert to is None or mine or not kept.touches(to, state.cluster)
