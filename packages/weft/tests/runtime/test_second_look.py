"""Soon after somebody was stopped the policy is asked again, but not again and again."""

from __future__ import annotations

import pytest

from weft.core.events.event import Decided, NodeUp, Submitted
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.plan import Plan
from weft.core.scheduler import Scheduler
from weft.policies.fifo import Fifo
from weft.runtime.deciding.decision import AT_ONCE_S, FIRST_S, SecondLook

NODE = Node(NodeId("n"), "a100", 2)
BOTH = Allocation((Slice(NODE.id, (0, 1)),))
STOPPED = Plan({JobId("a"): None})


def stopped(*waiting: int) -> Scheduler:
    """Two GPUs from which `a` was stopped, beside jobs that wait for so many each."""
    scheduler = Scheduler(Fifo(), Cluster((NODE,)))
    scheduler.apply_event(0.0, NodeUp(NODE))
    for name, gpus in [("a", 2), *((f"w{i}", gpus) for i, gpus in enumerate(waiting))]:
        scheduler.apply_event(0.0, Submitted(Job(JobId(name), demand=Demand(gpus))))
    scheduler.apply_event(1.0, Decided(1, {JobId("a"): BOTH}))
    scheduler.apply_event(2.0, Decided(2, STOPPED.changes))
    return scheduler


def test_whoever_fits_into_what_was_left_does_not_wait_for_long() -> None:
    look = SecondLook()
    state = stopped(1).state

    assert look.next_check(2.0, STOPPED, state) == 2.0 + AT_ONCE_S
    assert look.next_check(3.0, STOPPED, state) == 3.0 + 2.0 * AT_ONCE_S
    assert look.next_check(3.5, Plan({}), state) is None


@pytest.mark.parametrize(("most", "again"), [(1, None), (2, 2.0 + FIRST_S)])
def test_where_nobody_fits_only_a_job_that_could_grow_is_looked_at_again(
    most: int, again: float | None
) -> None:
    scheduler = stopped()
    small = Job(JobId("small"), demand=Demand(1, 1, most))
    scheduler.apply_event(2.0, Submitted(small))
    on = Allocation((Slice(NODE.id, (0,)),))
    scheduler.apply_event(2.0, Decided(3, {small.id: on}))

    assert SecondLook().next_check(2.0, STOPPED, scheduler.state) == again


def test_nobody_looks_again_where_nothing_is_left() -> None:
    scheduler = stopped(2)
    scheduler.apply_event(2.0, Decided(3, {JobId("w0"): BOTH}))

    assert SecondLook().next_check(2.0, STOPPED, scheduler.state) is None
