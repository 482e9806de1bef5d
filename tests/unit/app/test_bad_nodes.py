"""Nodes where one job after the other fails at its start."""

from __future__ import annotations

from weft.app.serve.bad_nodes import BadNodes
from weft.core.events.event import Decided, Failed, Finished, Started
from weft.core.model.job import Allocation, JobId, NodeId, Slice

BAD = NodeId("bad")


def run(watch: BadNodes, name: str, at: float, lasts: float, node: NodeId = BAD) -> NodeId | None:
    job = JobId(name)
    watch.note(at, Decided(1, {job: Allocation((Slice(node, (0,)),))}))
    watch.note(at, Started(job, 1))
    return watch.note(at + lasts, Failed(job, 1, "exit code 1\nmore"))


def test_three_jobs_in_a_row_make_it_suspect_and_it_is_said_why() -> None:
    watch = BadNodes()

    found = [run(watch, f"j{i}", 10.0 * i, 2.0) for i in range(3)]

    assert found == [None, None, BAD]
    assert watch.why(BAD) == "3 jobs in a row failed at their start, the last: exit code 1"


def test_one_job_that_is_tried_again_and_again_does_not() -> None:
    watch = BadNodes()

    assert [run(watch, "same", 10.0 * i, 2.0) for i in range(5)] == [None] * 5


def test_jobs_that_fail_elsewhere_as_well_do_not() -> None:
    watch = BadNodes()
    for i in range(3):
        run(watch, f"j{i}", i, 0.5, NodeId("good"))

    assert [run(watch, f"j{i}", 10.0 + i, 0.5) for i in range(3)] == [None] * 3


def test_a_job_that_ran_for_a_while_or_ended_well_clears_it() -> None:
    for well in (True, False):
        watch = BadNodes()
        run(watch, "j0", 0.0, 1.0)
        run(watch, "j1", 5.0, 1.0)
        if well:
            watch.note(10.0, Decided(1, {JobId("ok"): Allocation((Slice(BAD, (0,)),))}))
            watch.note(20.0, Finished(JobId("ok"), 1))
        else:
            run(watch, "long", 10.0, 500.0)

        assert run(watch, "j2", 600.0, 1.0) is None
