"""Nodes where one job after the other fails at its start."""

from __future__ import annotations

from weft.app.serve.bad_devices import BadNodes
from weft.core.events.event import Decided, Failed, Finished, Started
from weft.core.model.job import Allocation, JobId, NodeId, Slice

BAD = NodeId("bad")


def owner(job: JobId) -> str:
    """Two people, who take turns."""
    return "even" if job[-1:] in "02468k" else "odd"


def run(watch: BadNodes, name: str, at: float, lasts: float, node: NodeId = BAD) -> NodeId | None:
    job = JobId(name)
    watch.check_event(at, Decided(1, {job: Allocation((Slice(node, (0,)),))}))
    watch.check_event(at, Started(job, 1))
    return watch.check_event(at + lasts, Failed(job, 1, "exit code 1\nmore"))


def test_three_jobs_in_a_row_make_it_suspect_and_it_is_said_why() -> None:
    watch = BadNodes(owner)

    suspects = [run(watch, f"j{i}", 10.0 * i, 2.0) for i in range(3)]

    assert suspects == [None, None, BAD]
    assert watch.why(BAD) == "3 jobs of 2 people failed at their start, the last: exit code 1"


def test_one_job_that_is_tried_again_and_again_does_not() -> None:
    watch = BadNodes(owner)

    assert [run(watch, "same", 10.0 * i, 2.0) for i in range(5)] == [None] * 5


def test_jobs_that_fail_elsewhere_as_well_do_not() -> None:
    watch = BadNodes(owner)
    for i in range(3):
        run(watch, f"j{i}", i, 0.5, NodeId("good"))

    assert [run(watch, f"j{i}", 10.0 + i, 0.5) for i in range(3)] == [None] * 3


def test_a_job_that_ran_for_a_while_or_ended_well_clears_it() -> None:
    for well in (True, False):
        watch = BadNodes(owner)
        run(watch, "j0", 0.0, 1.0)
        run(watch, "j1", 5.0, 1.0)
        if well:
            watch.check_event(10.0, Decided(1, {JobId("ok"): Allocation((Slice(BAD, (0,)),))}))
            watch.check_event(20.0, Finished(JobId("ok"), 1))
        else:
            run(watch, "long", 10.0, 500.0)

        assert run(watch, "j2", 600.0, 1.0) is None


def test_one_persons_jobs_never_set_a_machine_aside() -> None:
    watch = BadNodes(lambda _: "vision/ada")

    assert [run(watch, f"j{i}", 10.0 * i, 2.0) for i in range(9)] == [None] * 9


def test_they_do_not_hide_that_another_persons_job_fails_there_as_well() -> None:
    watch = BadNodes(lambda job: "nlp/bob" if job == "other" else "vision/ada")
    for i in range(4):
        run(watch, f"j{i}", 10.0 * i, 2.0)

    assert run(watch, "other", 50.0, 2.0) == BAD


def test_two_people_whose_jobs_cannot_run_put_one_machine_at_most_out_of_use() -> None:
    """Three of four were, and everybody else's jobs waited."""
    watch = BadNodes(owner)
    nodes = [NodeId(f"n{i}") for i in range(4)]

    suspects = [run(watch, f"j{i}", 10.0 * i, 2.0, nodes[i // 6 % 4]) for i in range(96)]

    assert {suspect for suspect in suspects if suspect is not None} == {nodes[0]}


def test_who_had_bad_luck_is_a_witness_again_once_a_job_ran_well() -> None:
    watch = BadNodes(owner)
    for i in range(3):
        run(watch, f"j{i}", 10.0 * i, 2.0, NodeId("other"))
    for name in ("k", "j1"):
        run(watch, f"well-{name}", 50.0, 500.0, NodeId("good"))

    assert [run(watch, f"j{i}", 600.0 + i, 0.5) for i in range(4, 7)] == [None, None, BAD]
