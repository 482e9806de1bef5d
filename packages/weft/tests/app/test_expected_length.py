"""What people are told of a job's length and of its chance to fail."""

from __future__ import annotations

from weft.app.insight.counted_start import describe_length, in_words, warn_of_failure
from weft.core.events.job_end import Ended, EndKind
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.core.state.table import JobTable
from weft.predict.alike.predictor import Alike
from weft.predict.none import NoPredictor

TRAIN = Launch(("python", "train.py", "--lr", "0.1"))


def job(name: str, gpus: int = 4) -> Job:
    return Job(JobId(name), demand=Demand(gpus), tenant="t", user="ann", launch=TRAIN)


def taught(how: EndKind, *lengths: float, gpus: int = 4) -> Alike:
    predictor = Alike()
    for i, length in enumerate(lengths):
        taught_job = job(f"j{i}", gpus)
        predictor.note_submitted(taught_job, float(i))
        done = how is EndKind.COMPLETED
        predictor.learn(Ended(taught_job, length, length * gpus, done, how, at=float(i)))
    return predictor


def table_of(only: Job) -> JobTable:
    table = JobTable()
    table.add(only, 0)
    return table


def test_a_length_comes_with_a_range_and_what_it_is_from() -> None:
    predictor = taught(EndKind.COMPLETED, 1200, 1800, 2400, 2400, 3000, 2400)

    length = describe_length(predictor, table_of(job("x")), JobId("x"), 0.0)

    assert length.startswith("about 40 min (")
    assert length.endswith("), from your last 6 runs of train.py with 4 GPUs")


def test_a_range_that_reads_like_one_time_is_left_out() -> None:
    predictor = taught(EndKind.COMPLETED, *[2400.0] * 6)

    length = describe_length(predictor, table_of(job("x")), JobId("x"), 0.0)

    assert length == "about 40 min, from your last 6 runs of train.py with 4 GPUs"


def test_how_often_ranges_were_right_is_told_once_enough_were_scored() -> None:
    predictor = taught(EndKind.COMPLETED, *[2400.0] * 30)

    length = describe_length(predictor, table_of(job("x")), JobId("x"), 0.0)

    assert length.endswith(" % of such ranges were right")


def test_nothing_is_said_where_nothing_is_known() -> None:
    table = table_of(job("x"))

    assert describe_length(None, table, JobId("x"), 0.0) == ""
    assert describe_length(Alike(), table, JobId("x"), 0.0) == ""
    assert describe_length(NoPredictor(), table, JobId("x"), 0.0) == ""
    assert warn_of_failure(None, job("x")) == ""
    assert warn_of_failure(taught(EndKind.COMPLETED, 9, 9, 9, 9, 9), job("x")) == ""


def test_a_job_whose_like_failed_in_a_row_will_probably_fail() -> None:
    predictor = taught(EndKind.FAILED, 12, 12, 12, 12, 12)

    warning = warn_of_failure(predictor, job("x"))

    assert warning == (
        "likely to fail: all of your last 5 runs of train.py with 4 GPUs failed, "
        "after 12 s on average"
    )
    on_cpus = warn_of_failure(predictor, job("x"), "CPU slot")
    assert "with 4 CPU slots failed" in on_cpus
    large = taught(EndKind.FAILED, 12, 12, 12, 12, 12, gpus=16)
    assert warn_of_failure(large, job("x", 16)).endswith("; try it on one GPU first")


def test_times_are_said_as_people_say_them() -> None:
    assert [in_words(s) for s in (40, 720, 10800, 432000)] == ["40 s", "12 min", "3 h", "5 days"]
