"""Jobs without GPUs beside any policy."""

from __future__ import annotations

import pytest

from weft.core.errors import PlanError
from weft.core.events.event import Finished, Started, Submitted
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.scheduler import Scheduler
from weft.core.state.capacity import Capacity
from weft.core.state.saved_state import load_state, save_state
from weft.policies.fifo import Fifo
from weft.stack.layers import CpuJobs

N = NodeId("n0")
CLUSTER = Cluster((Node(N, "v100", 4, 8.0, 32.0), Node(NodeId("n1"), "v100", 4, 8.0, 32.0)))


def alone(name: str, cpus: float, mem_gb: float | None = None, priority: float = 0.0) -> Job:
    return Job(JobId(name), demand=Demand(0), cpus=cpus, mem_gb=mem_gb, priority=priority)


def held(scheduler: Scheduler) -> dict[str, tuple[str, int]]:
    table = scheduler.state.table
    pairs = zip(table.jobs, table.allocations, strict=True)
    return {job.id: (on.slices[0].node, on.gpus) for job, on in pairs if on is not None}


def test_they_take_cpus_and_no_devices_and_leave_all_devices_to_others() -> None:
    scheduler = Scheduler(CpuJobs(Fifo()), CLUSTER)
    wide = Job(JobId("wide"), demand=Demand(8))

    scheduler.step(0.0, [Submitted(alone("a", 6.0)), Submitted(alone("b", 6.0)), Submitted(wide)])

    assert held(scheduler) == {"a": ("n0", 0), "b": ("n1", 0), "wide": ("n0", 8)}


def test_one_that_finds_no_room_waits_for_another_of_its_sort() -> None:
    scheduler = Scheduler(CpuJobs(Fifo()), CLUSTER)
    jobs = [alone("a", 8.0), alone("b", 8.0), alone("c", 1.0), alone("d", 8.0, priority=1.0)]

    scheduler.step(0.0, [Submitted(job) for job in jobs])
    first = set(held(scheduler))
    scheduler.step(1.0, [Started(JobId("d"), 1), Finished(JobId("d"), 1)])

    assert first == {"d", "a"}
    assert set(held(scheduler)) == {"a", "b"}


def test_memory_counts_as_well() -> None:
    scheduler = Scheduler(CpuJobs(Fifo()), CLUSTER)

    jobs = [alone(name, 1.0, 20.0) for name in "abc"]
    scheduler.step(0.0, [Submitted(job) for job in jobs])

    assert set(held(scheduler)) == {"a", "b"}


def test_the_ledger_refuses_what_is_not_there() -> None:
    free = Capacity(CLUSTER)
    free.take(Allocation((Slice(N, (), 8.0),)))

    with pytest.raises(PlanError, match=r"0\.0 CPUs and 32\.0 GB left for jobs without GPUs"):
        free.take(Allocation((Slice(N, (), 1.0),)))
    with pytest.raises(PlanError, match="lists devices"):
        free.take(Allocation((Slice(N, (0,)), Slice(NodeId("n1"), ()))))


def test_a_rollback_gives_back_exactly_what_was_taken() -> None:
    free = Capacity(CLUSTER)
    mark = free.mark()
    for cpus in (0.1, 0.2, 0.3):
        free.take(Allocation((Slice(N, (), cpus, cpus),)))
    free.rollback(mark)

    assert free.hosted(0) == (0.0, 0.0)


def test_a_snapshot_remembers_them() -> None:
    scheduler = Scheduler(CpuJobs(Fifo()), CLUSTER)
    scheduler.step(0.0, [Submitted(alone("a", 6.0)), Submitted(alone("b", 6.0))])
    jobs = {job.id: job for job in scheduler.state.table.jobs}

    again = load_state(save_state(scheduler.state), jobs)

    assert again.free.hosted(0) == again.free.hosted(1) == (6.0, 0.0)
