"""Jobs that change their size as they run: no restart while they keep a device."""

from __future__ import annotations

from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.trace import Trace, Truth
from weft.perf.replay import Replay
from weft.sim.physics import ChangeTerms, Physics

NODE, OTHER = NodeId("a"), NodeId("b")


def on(node: NodeId, *gpus: int) -> Allocation:
    return Allocation((Slice(node, gpus),))


def physics(resize_s: float | None, checkpoint_s: float = 0.0) -> tuple[Physics, Job]:
    job = Job(JobId("j"), 0.0, Demand(2, min=1, max=4))
    made = Physics(
        Trace("one", ((job, Truth(100.0)),)),
        Replay(30.0),
        terms=ChangeTerms(resize_s=resize_s),
        checkpoint_s=checkpoint_s,
    )
    made.start(0.0, job, on(NODE, 0, 1), "v100")
    made.stop(10.0, 0)
    return made, job


def test_a_job_that_keeps_a_device_pays_for_the_change_of_size_alone() -> None:
    made, job = physics(2.0)

    following = made.start(10.0, job, on(NODE, 1, 2, 3, 4), "v100")

    assert following.at == 10.0 + 2.0 + 45.0
    assert made.starts[0] == 1
    assert made.resizes == 1


def test_a_job_that_moves_to_other_devices_restarts() -> None:
    made, job = physics(2.0)

    following = made.start(10.0, job, on(OTHER, 0, 1), "v100")

    assert following.at == 10.0 + 30.0 + 90.0
    assert made.starts[0] == 2
    assert made.resizes == 0


def test_a_job_that_waited_restarts() -> None:
    made, job = physics(2.0)

    assert made.start(11.0, job, on(NODE, 0, 1), "v100").at == 11.0 + 30.0 + 90.0


def test_the_time_to_leave_is_no_wait() -> None:
    made, job = physics(2.0, checkpoint_s=5.0)

    assert made.start(15.0, job, on(NODE, 0), "v100").at == 15.0 + 2.0 + 180.0


def test_without_it_every_change_of_size_is_a_restart() -> None:
    made, job = physics(None)

    assert made.start(10.0, job, on(NODE, 0, 1), "v100").at == 10.0 + 30.0 + 90.0
    assert made.resizes == 0
