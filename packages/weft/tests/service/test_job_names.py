"""Which job a text means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.runtime.records.job_records import JobRecord, JobRecords, row_of
from weft.service.access.tokens import ANYBODY, Caller
from weft.service.http.replies import HttpProblem
from weft.service.jobs.job_names import JobNames, own_id

ANN, BOB = Caller("user", "a", "ann"), Caller("user", "b", "bob")


def record(name: str, tenant: str = "a", user: str = "", outcome: str = "") -> JobRecord:
    job = Job(JobId(name), tenant=tenant, user=user, launch=Launch(("x",), name="train"))
    return JobRecord(job, 0.0, outcome=outcome)


def names(*records: JobRecord) -> JobNames:
    jobs = numbered(*records)
    return JobNames(lambda: jobs)


def numbered(*records: JobRecord) -> JobRecords:
    return JobRecords(replace(record, number=i) for i, record in enumerate(records))


def shelved(jobs: JobRecords) -> JobRecords:
    """The same with those that have ended in the store's table."""
    for job in [*jobs.leaving]:
        jobs.release_to_store(job)
    rows = [row_of(jobs.live[job]) for job in jobs.done]
    jobs.ended.put(rows)
    jobs.drop_stored(rows)
    return jobs


def test_a_job_is_found_by_id_without_its_tenant_and_by_a_unique_beginning() -> None:
    known = names(record("a:run-1"), record("a:other"), record("train-3f2a", "b"))

    assert known.resolve("a:run-1", ANN) == "a:run-1"
    assert known.resolve("run-1", ANN) == "a:run-1"
    assert known.resolve("ru", ANN) == "a:run-1"
    assert known.resolve("a:r", ANN) == "a:run-1"
    assert known.resolve("train-3", BOB) == "train-3f2a"
    assert known.resolve("run-1", ANYBODY) == "a:run-1"


def test_a_name_means_the_one_that_has_not_ended() -> None:
    known = names(record("x1", outcome="failed"), record("x2"), record("x3", outcome="succeeded"))

    assert known.resolve("train", ANN) == "x2"


def test_what_may_be_several_is_refused_with_their_ids() -> None:
    known = names(record("x1"), record("x2"), record("y", "b"))

    for text in ("train", "x"):
        with pytest.raises(HttpProblem) as refusal:
            known.resolve(text, ANN)
        assert refusal.value.status == 409
        assert refusal.value.hint == "say which: x1, x2"


def test_others_jobs_are_neither_found_nor_counted() -> None:
    known = names(record("x1"), record("x2", "b"))

    assert known.resolve("x", ANN) == "x1"
    assert known.resolve("train", BOB) == "x2"
    with pytest.raises(HttpProblem, match="no job 'x1'"):
        known.resolve("x1", BOB)


def test_last_is_the_last_that_the_caller_handed_in() -> None:
    known = names(record("x1", user="ann"), record("x2", user="cleo"), record("y", "b"))

    assert known.resolve("@last", ANN) == "x1"
    assert known.resolve("@last", ANYBODY) == "y"
    with pytest.raises(HttpProblem, match="no job '@last'"):
        known.resolve("@last", BOB)


def test_an_exact_id_goes_before_a_name_or_a_beginning() -> None:
    known = names(record("train"), record("train-2"))

    assert known.resolve("train", ANN) == "train"


def test_jobs_that_come_and_go_are_noticed() -> None:
    jobs = numbered(record("x1", outcome="failed"), record("x2"))
    known = JobNames(lambda: jobs)
    with pytest.raises(HttpProblem):
        known.resolve("x", ANN)

    jobs.release_to_store(JobId("x1"))
    assert jobs.forget([JobId("x1")]) == ["x1"]
    assert known.resolve("x", ANN) == "x2"
    jobs.add(record("z9").job, 0.0)
    assert known.resolve("z", ANN) == "z9"
    jobs.add(record("z8").job, 0.0)
    assert known.resolve("z8", ANN) == "z8"
    with pytest.raises(HttpProblem, match="any of 2"):
        known.resolve("z", ANN)


def test_those_in_the_table_are_found_like_those_in_memory() -> None:
    past = [record(f"run-{i}", outcome="failed", user="ann") for i in range(3)]
    jobs = shelved(numbered(*past, record("other", "b", outcome="failed"), record("run-9")))
    known = JobNames(lambda: jobs)
    assert [*jobs.live] == ["run-9"]

    assert known.resolve("run-1", ANN) == "run-1"
    assert known.resolve("train", ANN) == "run-9"
    assert known.resolve("@last", ANN) == "run-2"
    assert known.resolve("oth", BOB) == "other"
    with pytest.raises(HttpProblem, match="any of 4"):
        known.resolve("run", ANN)
    with pytest.raises(HttpProblem, match="no job 'oth'"):
        known.resolve("oth", ANN)
    with pytest.raises(HttpProblem, match=r"no job 'run-3'; did you mean 'run-"):
        known.resolve("run-3", ANN)


def test_a_name_of_very_many_is_refused_without_reading_all_of_them() -> None:
    jobs = shelved(numbered(*(record(f"run-{i}", outcome="failed") for i in range(150))))

    with pytest.raises(HttpProblem, match="any of 100 or more"):
        JobNames(lambda: jobs).resolve("train", ANN)


def test_a_tenants_people_choose_ids_of_their_own() -> None:
    assert own_id("run", "a", ANN) == "a:run"
    assert own_id("a:run", "a", ANN) == "a:run"
    assert own_id("run", "a", ANYBODY) == "run"
    assert own_id(None, "a", ANN) is None
    with pytest.raises(HttpProblem, match="begins with 'b'"):
        own_id("b:run", "a", ANN)
