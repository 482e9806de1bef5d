"""A plan is checked before it is carried out; each broken rule is named."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest

from weft.core.errors import PlanError
from weft.core.events.actions import Start, Wake
from weft.core.events.event import Cancelled, Submitted
from weft.core.model import job as model
from weft.core.model.cluster import parse_cluster
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler

A, B, E, K, H = (
    model.JobId("a"),
    model.JobId("b"),
    model.JobId("elastic"),
    model.JobId("kinds"),
    model.JobId("half"),
)
JOBS = (
    model.Job(A, demand=model.Demand(2)),
    model.Job(B, demand=model.Demand(2)),
    model.Job(E, demand=model.Demand(2, min=1, max=4)),
    model.Job(K, demand=model.Demand(1, kinds=("t4",))),
    model.Job(H, demand=model.Demand(1, share=0.5)),
)
T4, V100 = model.NodeId("t4-0"), model.NodeId("v100-1")


@dataclass(frozen=True)
class Says:
    """A policy that always gives the same plan."""

    plan: Plan
    about: About = field(default=About("says", "test"))

    def decide(self, view: View) -> Plan:
        return self.plan


def on(
    *gpus: int, node: model.NodeId = V100, sharing: model.Sharing | None = None
) -> model.Allocation:
    return model.Allocation((model.Slice(node, gpus),), sharing or model.Sharing())


def scheduler_of(plan: Plan, controls: Controls = Controls.NOTHING) -> Scheduler:
    about = About("says", "test", controls=controls)
    return Scheduler(Says(plan, about), parse_cluster("1x4:t4+1x4:v100"))


def wrong(plan: Plan, controls: Controls = Controls.NOTHING) -> str:
    scheduler = scheduler_of(plan, controls)
    with pytest.raises(PlanError) as caught:
        scheduler.step(100.0, [Submitted(job) for job in JOBS])
    assert scheduler.state.free.idle() == 8, "a refused plan leaves the ledger as it was"
    assert not any(scheduler.state.table.allocations)
    assert "check_policy" in caught.value.hint
    prefix = "policy 'says', decision 0: "
    assert caught.value.what.startswith(prefix)
    return caught.value.what.removeprefix(prefix)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({model.JobId("who"): on(0)}, "names 'who', which is not an active job"),
        (
            {A: on(0, 1), B: on(1, 2)},
            "gives 'b' devices that it cannot have: GPU 1 of v100-1 is claimed to 1.00 already",
        ),
        ({A: on(3, 4)}, "gives 'a' devices that it cannot have: GPU 4 of v100-1 does not exist"),
        (
            {A: on(0, 1, node=model.NodeId("n9"))},
            "gives 'a' devices that it cannot have: node 'n9' is not in the cluster",
        ),
        ({A: on(0)}, "gives 'a' 1 GPU; it takes 2 to 2"),
        ({A: on(0, 1, 2)}, "gives 'a' 3 GPUs; it takes 2 to 2"),
        ({A: model.Allocation(())}, "gives 'a' 0 GPUs; it takes 2 to 2"),
        ({E: on(0)}, "gives 'elastic' 1 GPU; it takes 2 to 2"),
        ({K: on(0)}, "puts 'kinds' on ['v100']; it takes ('t4',)"),
        (
            {A: model.Allocation((model.Slice(T4, (0,)), model.Slice(V100, (0,))))},
            "puts 'a' on ['t4', 'v100']; it takes one",
        ),
        (
            {A: on(0, 1, sharing=model.Sharing(share=0.5))},
            "sets the share of 'a' without declaring Controls.SHARE",
        ),
        ({H: on(0)}, "sets the share of 'half' without declaring Controls.SHARE"),
        (
            {A: on(0, 1, sharing=model.Sharing(tier=model.Tier.OPPORTUNISTIC))},
            "sets the tier of 'a' without declaring Controls.TIER",
        ),
        (
            {A: on(0, 1, sharing=model.Sharing(phase=0.5))},
            "sets the phase of 'a' without declaring Controls.PHASE",
        ),
        (
            {A: replace(on(0, 1), batch=model.Batch(32))},
            "sets the batch of 'a' without declaring Controls.BATCH",
        ),
        (
            {A: replace(on(0, 1), time_shift=model.TimeShift(0.2, 0.1))},
            "shifts the iterations of 'a' without declaring Controls.SHIFT",
        ),
    ],
)
def test_a_broken_rule_is_named_with_policy_job_and_devices(
    changes: dict[model.JobId, model.Allocation | None], message: str
) -> None:
    assert wrong(Plan(changes)) == message


def test_the_reason_of_the_ledger_is_kept_as_the_cause() -> None:
    with pytest.raises(PlanError) as caught:
        scheduler_of(Plan({A: on(3, 4)})).step(0.0, [Submitted(JOBS[0])])

    assert isinstance(caught.value.__cause__, PlanError)


def test_rejecting_an_unknown_job_is_refused() -> None:
    assert (
        wrong(Plan(rejected={model.JobId("who"): "?"})) == "names 'who', which is not an active job"
    )


def test_a_job_may_not_be_changed_and_rejected_at_once() -> None:
    plan = Plan({A: on(0, 1), B: None}, rejected={A: "no", B: "no"})

    assert wrong(plan) == "both changes and rejects 'a', 'b'"


@pytest.mark.parametrize("wake", [100.0, 99.0, -math.inf, math.nan])
def test_a_wish_to_be_woken_must_lie_in_the_future(wake: float) -> None:
    assert wrong(Plan(wake_at=wake)) == f"asked at 100.0 to be woken at {wake}"


@pytest.mark.parametrize("gpus", [(0,), (0, 1, 2, 3)])
def test_a_policy_that_declares_counts_may_use_the_whole_range(gpus: tuple[int, ...]) -> None:
    scheduler = scheduler_of(Plan({E: on(*gpus)}), Controls.COUNT)

    actions = scheduler.step(0.0, [Submitted(JOBS[2])])

    assert actions == [Start(JOBS[2], on(*gpus), 1)]


def test_a_policy_that_declares_counts_still_keeps_to_the_range() -> None:
    message = wrong(Plan({A: on(0, 1, 2)}), Controls.COUNT)

    assert message == "gives 'a' 3 GPUs; it takes 2 to 2"


@pytest.mark.parametrize(
    ("controls", "to"),
    [
        (Controls.SHARE, on(0, 1, sharing=model.Sharing(share=0.5))),
        (Controls.TIER, on(0, 1, sharing=model.Sharing(tier=model.Tier.OPPORTUNISTIC))),
        (Controls.PHASE, on(0, 1, sharing=model.Sharing(phase=0.5))),
        (Controls.BATCH, replace(on(0, 1), batch=model.Batch(32))),
        (Controls.SHIFT, replace(on(0, 1), time_shift=model.TimeShift(0.2, 0.1))),
    ],
)
def test_what_a_policy_declares_it_may_set(controls: Controls, to: model.Allocation) -> None:
    scheduler = scheduler_of(Plan({A: to}), controls)

    assert scheduler.step(0.0, [Submitted(JOBS[0])]) == [Start(JOBS[0], to, 1)]


def test_a_job_that_asks_for_a_part_gets_exactly_that_part() -> None:
    to = on(0, sharing=model.Sharing(share=0.5))
    scheduler = scheduler_of(Plan({H: to}))

    assert scheduler.step(0.0, [Submitted(JOBS[4])]) == [Start(JOBS[4], to, 1)]


def test_devices_that_one_job_gives_up_may_go_to_another_in_the_same_plan() -> None:
    scheduler = scheduler_of(Plan({A: on(0, 1, node=T4)}))
    scheduler.step(0.0, [Submitted(JOBS[0])])

    scheduler.policy = Says(Plan({B: on(0, 1, node=T4), A: None}))
    scheduler.step(1.0, [Submitted(JOBS[1])])

    assert scheduler.state.table.allocations == [None, on(0, 1, node=T4)]


def test_what_a_policy_does_to_the_ledger_is_undone() -> None:
    @dataclass(frozen=True)
    class Messy:
        about: About = field(default=About("messy", "test"))

        def decide(self, view: View) -> Plan:
            view.free.take(on(0, 1, 2, 3))
            return Plan(wake_at=view.now + 1.0)

    scheduler = Scheduler(Messy(), parse_cluster("1x4:t4+1x4:v100"))

    assert scheduler.step(0.0, [Submitted(JOBS[0])]) == [Wake(1.0)]

    assert scheduler.state.free.idle() == 8


@dataclass(frozen=True)
class Tries:
    """A policy that takes one allocation in the ledger, and says another one."""

    takes: model.Allocation
    says: model.Allocation
    about: About = field(default=About("says", "test"))

    def decide(self, view: View) -> Plan:
        view.free.take(self.takes)
        return Plan({A: self.says})


def test_a_plan_that_was_tried_in_the_ledger_is_carried_out() -> None:
    scheduler = Scheduler(Tries(on(0, 1), on(0, 1)), parse_cluster("1x4:t4+1x4:v100"))
    actions = scheduler.step(100.0, [Submitted(JOBS[0])])
    assert [action.on for action in actions if isinstance(action, Start)] == [on(0, 1)]
    assert scheduler.state.free.idle() == 6


@pytest.mark.parametrize("says", [on(3, 4), on(0, 0), on(0, 1, node=model.NodeId("who"))])
def test_a_plan_other_than_what_was_tried_is_checked(says: model.Allocation) -> None:
    scheduler = Scheduler(Tries(on(0, 1), says), parse_cluster("1x4:t4+1x4:v100"))
    with pytest.raises(PlanError, match="devices that it cannot have"):
        scheduler.step(100.0, [Submitted(JOBS[0])])
    assert scheduler.state.free.idle() == 8


def test_a_plan_that_was_tried_keeps_the_rules_of_its_job() -> None:
    scheduler = Scheduler(Tries(on(0, 1, 2), on(0, 1, 2)), parse_cluster("1x4:t4+1x4:v100"))
    with pytest.raises(PlanError):
        scheduler.step(100.0, [Submitted(JOBS[0])])


def test_a_refused_plan_does_not_stop_the_scheduler_from_going_on() -> None:
    scheduler = scheduler_of(Plan({A: on(0)}))
    with pytest.raises(PlanError):
        scheduler.step(0.0, [Submitted(JOBS[0])])

    scheduler.policy = Says(Plan())

    assert scheduler.step(1.0, [Cancelled(A)]) == []
    assert len(scheduler.state.table) == 0
