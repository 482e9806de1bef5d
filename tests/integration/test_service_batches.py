"""Many jobs in one request: all or none, each as if it had been submitted by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.serving import FAST, STILL, bearer, serving, token
from tests.seeds import seeds
from tests.waiting import wait_until

BATCH = "/api/v1/jobs/batch"
ENDED = ("succeeded", "failed", "cancelled")


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with serving(STILL) as client:
        yield client


def job(name: str, **more: object) -> dict[str, Any]:
    return {"id": name, "command": ["x"], **more}


def listed(client: httpx.Client, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = client.get("/api/v1/jobs", headers=headers).json()["jobs"]
    return jobs


def known(client: httpx.Client, headers: dict[str, str] | None = None) -> list[str]:
    return [row["id"] for row in listed(client, headers)]


def test_all_jobs_are_taken_in_order(client: httpx.Client) -> None:
    names = [f"j{number}" for number in range(120)]
    answer = client.post(BATCH, json={"jobs": [job(name) for name in names]})
    assert answer.status_code == 201
    assert answer.json()["jobs"] == names
    jobs = client.get("/api/v1/jobs", params={"limit": 200}).json()["jobs"]
    assert [job["id"] for job in jobs] == names


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (job("b", gpus=-1), "jobs.1.gpus"),
        (job("b", gpus=4000), "jobs.1"),
        (job("b", sweep={"grid": {"lr": [1, 2]}}), "jobs.1.sweep"),
        (job("b", after={"ok": ["nobody"]}), "jobs.1.after"),
    ],
)
def test_one_bad_job_is_named_and_none_is_taken(
    client: httpx.Client, bad: dict[str, Any], field: str
) -> None:
    answer = client.post(BATCH, json={"jobs": [job("a"), bad, job("c")]})
    assert answer.status_code == 422
    assert field in answer.text
    assert known(client) == []


@pytest.mark.parametrize("seed", seeds(6))
def test_batches_with_any_order_among_jobs_are_taken_whole_or_not_and_all_taken_end(
    seed: int,
) -> None:
    """After jobs of before, of the same batch, later ones, or itself."""
    rng = random.Random(seed)
    taken: list[str] = []
    with serving(FAST) as client:
        for number in range(6):
            names = [f"b{number}-{i}" for i in range(rng.randint(1, 6))]
            pool = [*taken, *([] if rng.random() < 0.6 else names)]
            jobs = [
                job(name, gpus=rng.choice([0, 1, 4]), hints={"duration_s": 60}) for name in names
            ]
            for body in jobs:
                named = rng.sample(pool, min(len(pool), rng.randint(0, 2)))
                body["after"] = {rng.choice(["ok", "any", "not_ok"]): named} if named else {}
            within = {name for job in jobs for names in job["after"].values() for name in names}

            answer = client.post(BATCH, json={"jobs": jobs})

            assert answer.status_code == (422 if within - {*taken} else 201), answer.text
            taken += names if answer.status_code == 201 else []
        assert sorted(known(client)) == sorted(taken)
        wait_until(lambda: all(row["state"] in ENDED for row in listed(client)))


def test_the_same_id_twice_is_refused(client: httpx.Client) -> None:
    answer = client.post(BATCH, json={"jobs": [job("a"), job("a", command=["y"])]})
    assert answer.status_code in {409, 422}
    assert known(client) == []


def test_a_batch_sent_again_is_submitted_once(client: httpx.Client) -> None:
    body = {"jobs": [job("a"), job("b")]}
    assert client.post(BATCH, json=body).status_code == 201
    body["jobs"].append(job("c"))
    assert client.post(BATCH, json=body).json()["jobs"] == ["a", "b", "c"]
    assert known(client) == ["a", "b", "c"]


def test_too_many_jobs_or_none_are_refused(client: httpx.Client) -> None:
    for jobs in ([], [job(f"j{number}") for number in range(501)]):
        assert client.post(BATCH, json={"jobs": jobs}).status_code == 422
    assert known(client) == []


def test_tenants_stay_apart_and_nobody_grants_himself_a_guarantee(client: httpx.Client) -> None:
    admin = token(client, "admin")
    ann = bearer(token(client, "user", "a", admin))
    other = client.post(BATCH, json={"jobs": [job("x"), job("y", tenant="b")]}, headers=ann)
    first = job("y", priority="guaranteed")
    granted = client.post(BATCH, json={"jobs": [job("x"), first]}, headers=ann)
    assert (other.status_code, granted.status_code) == (403, 403)
    assert known(client, ann) == []
