"""Jobs that change their batch size as they train: what happens, and what is seen of it."""

from __future__ import annotations

import pytest

from weft.app.simulate.api import simulate
from weft.core.errors import InvalidConfig
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.trace import Detail, Trace, Truth
from weft.core.protocols import SimulatedJob
from weft.formulas.training.regimes import Regimes
from weft.perf.replay import Replay
from weft.perf.training.layered import InRegimes
from weft.perf.training.learner import Learner

RUNS = ((32, 4), (64, 4), (128, 2))
DECLARED = Regimes(10, {32: 100.0, 64: 60.0, 128: 40.0}, 1000.0)
JOB = Job(JobId("a"), demand=Demand(2), hints=DECLARED.hints())
TRUTH = Truth(720.0, schedule=RUNS)
TWO = Allocation((Slice(NodeId("n"), (0, 1)),))


def started(on: Allocation = TWO, truth: Truth = TRUTH) -> SimulatedJob:
    job = InRegimes(Replay()).simulate_job(JOB, truth)
    job.begin(on, "v100")
    return job


def test_a_job_reports_its_epoch_and_batch() -> None:
    job = started()

    reports = [job.pace(done, 1e9).report for done in (0.0, 250.0, 400.0, 470.0, 719.0)]

    assert [(r.epoch, r.batch) for r in reports if r] == [
        *((0.0, 32.0), (2.0, 32.0), (4.0, 64.0), (5.0, 64.0)),
        (9.0, 128.0),
    ]


def test_a_job_is_asked_again_when_its_regime_ends() -> None:
    half = Allocation((Slice(NodeId("n"), (0,)),))

    assert started().pace(300.0, 1000.0).seconds == pytest.approx(100.0)
    assert started(half).pace(300.0, 1000.0).seconds == pytest.approx(200.0)
    assert started().pace(300.0, 60.0).seconds == 60.0


def test_a_stretched_trace_has_longer_epochs() -> None:
    job = started(truth=Truth(1440.0, schedule=RUNS))

    report = job.pace(820.0, 1e9).report

    assert report is not None
    assert (report.epoch, report.batch) == (4.0, 64.0)


def test_a_batch_that_was_not_declared_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="does not declare"):
        InRegimes(Replay()).simulate_job(JOB, Truth(720.0, schedule=((16, 10),)))


def test_what_a_job_reports_is_what_is_seen() -> None:
    training = Learner()
    for over, batch in ((0, 32), (2, 32), (4, 64), (8, 128), (9, 128)):
        training.observe(JOB, "v100", Report(epoch=float(over), batch=float(batch)))

        assert training.epochs(JOB) == EpochsSoFar.after(over, RUNS)


def test_a_job_that_goes_back_to_a_checkpoint_is_not_counted_twice() -> None:
    training = Learner()
    for over in (0, 3, 1, 3):
        training.observe(JOB, "v100", Report(epoch=float(over), batch=32.0))

    assert training.epochs(JOB) == EpochsSoFar(3, {32: 4}, 32)


def test_measured_epochs_count_where_they_are_far_from_declared() -> None:
    training = Learner()
    close, far = 100.0 / 31.25 * 1.3, 100.0 / 31.25 * 3.0  # seconds a step of 32 samples
    training.observe(JOB, "v100", Report(epoch=0.0, batch=32.0, step_s=close))
    assert training.epochs(JOB) == EpochsSoFar(0, {32: 1}, 32, 1.0)

    training.observe(JOB, "v100", Report(epoch=1.0, batch=32.0, step_s=far))

    seen = training.epochs(JOB)
    assert seen is not None
    assert seen.slower == pytest.approx(3.0)


def test_what_was_seen_is_kept_and_forgotten() -> None:
    training, again = Learner(), Learner()
    training.observe(JOB, "v100", Report(epoch=2.0, batch=32.0))

    again.load(training.save())
    training.forget(JOB)

    assert again.epochs(JOB) == EpochsSoFar(2, {32: 3}, 32)
    assert training.epochs(JOB) is None


def test_a_job_in_regimes_ends_after_all_its_epochs() -> None:
    trace = Trace("one", ((JOB, TRUTH),), "1x2:v100", detail=Detail.REGIMES)

    result = simulate(trace, "fifo", "1x2:v100")

    assert result["policies"]["fifo"]["makespan_h"] == pytest.approx(0.2)
