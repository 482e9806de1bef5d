"""Soon after somebody was stopped the policy is asked again, but not again and again."""

from __future__ import annotations

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

    assert look.after(2.0, STOPPED, state) == 2.0 + AT_ONCE_S
    assert look.after(3.0, STOPPED, state) == 3.0 + 2.0 * AT_ONCE_S
    assert look.after(3.5, Plan({}), state) is None


def test_nobody_fits_and_there_is_time() -> None:
    scheduler = stopped(1)
    scheduler.apply_event(2.0, Decided(3, {JobId("w0"): Allocation((Slice(NODE.id, (0,)),))}))

    assert SecondLook().after(2.0, STOPPED, scheduler.state) == 2.0 + FIRST_S
