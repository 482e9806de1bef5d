"""Which job a text means."""

from __future__ import annotations

import pytest

from weft.app.serve.live import JobRecord
from weft.core.launch import Launch
from weft.core.model import Job, JobId
from weft.service.auth import ANYBODY, Caller
from weft.service.job_names import JobNames, own_id
from weft.service.refusals import Refused

ANN, BOB = Caller("user", "a", "ann"), Caller("user", "b", "bob")


def record(name: str, tenant: str = "a", user: str = "", outcome: str = "") -> JobRecord:
    job = Job(JobId(name), tenant=tenant, user=user, launch=Launch(("x",), name="train"))
    return JobRecord(job, 0.0, outcome=outcome)


def names(*records: JobRecord) -> JobNames:
    jobs = {one.job.id: one for one in records}
    return JobNames(lambda: jobs)


def test_a_job_is_found_by_id_without_its_tenant_and_by_a_unique_beginning() -> None:
    known = names(record("a:run-1"), record("a:other"), record("train-3f2a", "b"))

    assert known.find("a:run-1", ANN) == "a:run-1"
    assert known.find("run-1", ANN) == "a:run-1"
    assert known.find("ru", ANN) == "a:run-1"
    assert known.find("a:r", ANN) == "a:run-1"
    assert known.find("train-3", BOB) == "train-3f2a"
    assert known.find("run-1", ANYBODY) == "a:run-1"


def test_a_name_means_the_one_that_has_not_ended() -> None:
    known = names(record("x1", outcome="failed"), record("x2"), record("x3", outcome="succeeded"))

    assert known.find("train", ANN) == "x2"


def test_what_may_be_several_is_refused_with_their_ids() -> None:
    known = names(record("x1"), record("x2"), record("y", "b"))

    for text in ("train", "x"):
        with pytest.raises(Refused) as refusal:
            known.find(text, ANN)
        assert refusal.value.status == 409
        assert refusal.value.hint == "say which: x1, x2"


def test_others_jobs_are_neither_found_nor_counted() -> None:
    known = names(record("x1"), record("x2", "b"))

    assert known.find("x", ANN) == "x1"
    assert known.find("train", BOB) == "x2"
    with pytest.raises(Refused, match="no job 'x1'"):
        known.find("x1", BOB)


def test_last_is_the_last_that_the_caller_handed_in() -> None:
    known = names(record("x1", user="ann"), record("x2", user="cleo"), record("y", "b"))

    assert known.find("@last", ANN) == "x1"
    assert known.find("@last", ANYBODY) == "y"
    with pytest.raises(Refused, match="no job '@last'"):
        known.find("@last", BOB)


def test_an_exact_id_goes_before_a_name_or_a_beginning() -> None:
    known = names(record("train"), record("train-2"))

    assert known.find("train", ANN) == "train"


def test_jobs_that_come_and_go_are_noticed() -> None:
    jobs = {one.job.id: one for one in (record("x1"), record("x2"))}
    known = JobNames(lambda: jobs)
    with pytest.raises(Refused):
        known.find("x", ANN)

    del jobs[JobId("x1")]
    assert known.find("x", ANN) == "x2"
    del jobs[JobId("x2")]
    jobs[JobId("z9")] = record("z9")
    assert known.find("z", ANN) == "z9"
    jobs[JobId("z8")] = record("z8")
    assert known.find("z8", ANN) == "z8"
    with pytest.raises(Refused, match="any of 2"):
        known.find("z", ANN)


def test_a_tenants_people_choose_ids_of_their_own() -> None:
    assert own_id("run", "a", ANN) == "a:run"
    assert own_id("a:run", "a", ANN) == "a:run"
    assert own_id("run", "a", ANYBODY) == "run"
    assert own_id(None, "a", ANN) is None
    with pytest.raises(Refused, match="begins with 'b'"):
        own_id("b:run", "a", ANN)
