"""Progress on what a job holds, settled whenever its run ends."""

from __future__ import annotations

import numpy as np
import pytest
from packages.weft.tests.perf.goodput.test_adaptive import toy

from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.model.trace import Trace, Truth
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.replay import Replay
from weft.perf.restart import restart_s
from weft.sim.physics import DEATH, END, ChangeTerms, Physics

ELASTIC = Job(JobId("e"), demand=Demand(2, min=1, max=8))
BERT = Job(JobId("b"), model="BERT")
SEQ = np.array([0.0, 1.0])


def on(*gpus: int, node: str = "n", share: float = 1.0) -> Allocation:
    return Allocation((Slice(NodeId(node), gpus),), Sharing(share=share))


def physics(cost: float | None = 10.0, failures: tuple[float, ...] = ()) -> Physics:
    trace = Trace("t", ((ELASTIC, Truth(100.0, failures)), (BERT, Truth(50.0))))
    return Physics(trace, Replay(cost), checkpoint_every=20.0)


@pytest.mark.parametrize(
    ("held", "end"),
    [(on(0, 1), 100.0), (on(0), 200.0), (on(0, 1, 2, 3), 50.0), (on(0, 1, share=0.5), 200.0)],
)
def test_speed_is_in_proportion_to_what_is_held(held: Allocation, end: float) -> None:
    milestone = physics().start(0.0, ELASTIC, held, "v100")

    assert (milestone.at, milestone.what) == (end, END)


def test_remaining_work_falls_linearly_and_stands_still_between_runs() -> None:
    world = physics()
    world.start(10.0, ELASTIC, on(0), "v100")

    assert world.remaining(SEQ, 10.0).tolist() == [100.0, 50.0]
    assert world.remaining(SEQ, 50.0).tolist() == [80.0, 50.0]
    world.end_run(50.0, 0)
    assert world.remaining(SEQ, 500.0).tolist() == [80.0, 50.0]


def test_a_restart_makes_no_progress_until_it_is_paid_for() -> None:
    world = physics()
    world.start(0.0, ELASTIC, on(0, 1), "v100")
    world.end_run(40.0, 0)

    milestone = world.start(100.0, ELASTIC, on(0, 1), "v100")

    assert milestone.at == 170.0
    assert world.remaining(SEQ, 105.0)[0] == 60.0
    assert world.remaining(SEQ, 130.0)[0] == 40.0


def test_a_first_start_that_was_cut_off_begins_anew() -> None:
    job = Job(JobId("a"), model="toy")
    trace = Trace("t", ((job, Truth(1000.0)),))
    world = Physics(
        trace,
        Adaptive({"toy": toy()}),
        terms=ChangeTerms(start_s=lambda _, *, first: 100.0 if first else 1.0),
    )
    world.start(0.0, job, on(0), "t4")
    world.end_run(50.0, 0)

    again = world.start(60.0, job, on(0), "t4")
    world.update_progress(again.at, 0)
    world.end_run(200.0, 0)
    world.start(300.0, job, on(0), "t4")

    assert again.at == 160.0
    assert world.trains_at(0) == 301.0


def test_a_run_that_is_stopped_while_restarting_loses_nothing_and_gains_nothing() -> None:
    world = physics()
    world.start(0.0, ELASTIC, on(0, 1), "v100")
    world.end_run(40.0, 0)
    world.start(100.0, ELASTIC, on(0, 1), "v100")

    world.end_run(104.0, 0)

    assert world.remaining(SEQ, 200.0)[0] == 60.0
    assert world.ran_s[0] == 44.0
    assert world.gpu_s[0] == 88.0


def test_without_an_override_the_model_says_what_a_restart_costs() -> None:
    world = physics(cost=None)
    world.start(0.0, BERT, on(0), "v100")
    world.end_run(10.0, 1)

    assert world.start(10.0, BERT, on(0), "v100").at == 10.0 + 120.0 + 40.0
    assert restart_s("no-such-model") == 30.0


def test_a_crash_keeps_whole_checkpoint_intervals_of_its_run() -> None:
    world = physics()
    world.start(0.0, ELASTIC, on(0, 1), "v100")
    world.end_run(15.0, 0)
    world.start(15.0, ELASTIC, on(0, 1), "v100")

    world.end_run(75.0, 0, crashed=True)  # 10 s of restart, 50 of progress: two intervals kept

    assert world.remaining(SEQ, 75.0)[0] == 100.0 - 15.0 - 40.0
    assert world.lost_s[0] == 10.0


def test_death_comes_at_the_next_point_of_failure() -> None:
    world = physics(failures=(30.0, 60.0))

    milestone = world.start(0.0, ELASTIC, on(0), "v100")
    assert (milestone.at, milestone.what) == (60.0, DEATH)

    world.fail_run(60.0, 0)
    again = world.start(60.0, ELASTIC, on(0, 1), "v100")
    assert (again.at, again.what) == (60.0 + 10.0 + 40.0, DEATH)


def test_jobs_are_found_by_the_nodes_they_run_on() -> None:
    world = physics()
    gang = Allocation((Slice(NodeId("n"), (0,)), Slice(NodeId("m"), (0,))))
    world.start(0.0, ELASTIC, gang, "v100")
    world.start(0.0, BERT, on(1), "v100")

    assert world.running_on(NodeId("n")) == [0, 1]
    assert world.running_on(NodeId("m")) == [0]
    world.end_run(5.0, 0)
    assert world.running_on(NodeId("n")) == [1]


def test_every_stretch_is_kept_for_the_timeline() -> None:
    world = physics()
    world.start(0.0, ELASTIC, on(0), "v100")
    world.end_run(5.0, 0)
    world.start(9.0, ELASTIC, on(1), "v100")
    world.finish(30.0, 0)

    assert [(r.seq, r.start, r.end) for r in world.runs] == [(0, 0.0, 5.0), (0, 9.0, 30.0)]
    assert world.ended_at[0] == 30.0


def test_stopping_what_does_not_run_changes_nothing() -> None:
    world = physics()

    world.end_run(5.0, 0)

    assert world.runs == []
