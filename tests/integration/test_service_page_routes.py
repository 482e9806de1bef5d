"""Routes that the web page brought: the past, decisions, jobs as files, what-ifs with progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, FAST, STILL, bearer, get, serving, submit, token
from tests.waiting import wait_until
from weft.service.jobs.job_names import JobNames


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(STILL) as client:
        yield client


def test_the_timeline_tells_who_holds_what_and_then_the_news(client: httpx.Client) -> None:
    first = submit(client, gpus=2, kinds=["t4"])
    wait_until(lambda: bool(get(client, "/timeline")["spans"]))
    answer = get(client, "/timeline")

    second = submit(client, gpus=1, kinds=["t4"])
    wait_until(lambda: bool(get(client, "/timeline", after=answer["seq"])["spans"]))
    news = get(client, "/timeline", after=answer["seq"])

    assert [span["job"] for span in answer["spans"]] == [first]
    assert len(answer["spans"][0]["on"][0]["gpus"]) == 2
    assert [span["job"] for span in news["spans"]] == [second]
    assert [s["job"] for s in get(client, "/timeline", job=first)["spans"]] == [first]
    moves = get(client, "/decisions")["decisions"][0]
    assert moves["moves"][0]["job"] == second
    assert moves["took_s"] > 0.0


def test_a_job_as_a_file_describes_the_same_job(client: httpx.Client) -> None:
    body = {
        "name": "whole",
        "run": "python train.py | tee log",
        "env": {"KEY": "hunter2", "SEED": "1"},
        "secrets": ["KEY"],
        "gpus": {"min": 1, "max": 4},
        "kinds": ["a100"],
        "batch": {"init": 8, "max": 64},
        "priority": "opportunistic",
        "checkpoint": {"dir": "ckpt", "grace_s": 5.0},
        "retries": 1,
    }
    made = submit(client, **body)

    answer = get(client, f"/jobs/{made}/file")

    hidden = {**body, "env": {"KEY": "********", "SEED": "********"}, "tenant": "default"}
    assert answer["job"] == hidden
    read = client.post(f"{API}/job-file", json={"text": answer["yaml"]})
    assert read.json()["job"] == hidden


def test_a_job_is_handed_in_again_with_a_change_in_its_place(client: httpx.Client) -> None:
    large = submit(client, name="large", gpus=8, kinds=["a100"], command=["true"])
    body = {"change": {"gpus": 1, "kinds": None}, "replace": True}

    answer = client.post(f"{API}/jobs/{large}/again", json=body)

    again = get(client, f"/jobs/{answer.json()['id']}")
    assert again["name"] == "large"
    assert again["gpus"]["asked"] == 1
    assert again["kinds"] == []
    assert get(client, f"/jobs/{large}")["state"] == "cancelled"
    wrong = client.post(f"{API}/jobs/{large}/again", json={"change": {"gpu": 1}})
    assert wrong.status_code == 422
    assert "did you mean 'gpus'?" in wrong.text


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: &x [1]\nb: *x", "a YAML reference"), ("{", "not YAML"), ("- a", "field")],
)
def test_a_text_that_is_no_job_file_is_refused(
    client: httpx.Client, text: str, message: str
) -> None:
    answer = client.post(f"{API}/job-file", json={"text": text})

    assert answer.status_code == 422
    assert message in answer.text


def test_policies_tell_their_papers_and_which_decides(client: httpx.Client) -> None:
    answer = get(client, "/policies")

    known = {policy["name"]: policy for policy in answer["policies"]}
    assert answer["active"] == get(client, "/policy")["policy"]
    assert "Schrage" in known["srtf"]["sections"]["Paper"]
    assert known["las"]["parameters"]
    assert not known["fifo"]["refused"]


def test_a_what_if_tells_how_far_it_is_and_both_sides() -> None:
    with serving(FAST) as client:
        jobs = [submit(client, gpus=4, hints={"duration_s": 300}) for _ in range(8)]
        wait_until(lambda: get(client, f"/jobs/{jobs[-1]}")["state"] == "succeeded")

        lines = _ask(client, {"policy": "srtf"})
        ahead = _ask(client, {"policy": "srtf", "start": "now"})

        assert lines[-1]["result"]["jobs"] == 8
        last = {line["progress"]["label"]: line["progress"]["part"] for line in lines[:-1]}
        assert set(last.values()) == {1.0}
        assert set(last) == set(lines[-1]["sides"]) == set(lines[-1]["result"]["policies"])
        assert all(len(side["jct_h"]) == 8 for side in lines[-1]["sides"].values())
        assert all(side["spans"] for side in lines[-1]["sides"].values())
        assert ahead[-1]["result"]["jobs"] == 0


def test_a_tenant_learns_nothing_of_others_from_the_past() -> None:
    with serving(STILL) as client:
        admin = token(client, "admin")
        mine = token(client, "user", "mine", by=admin)
        body = {"id": "theirs", "name": "theirs", "gpus": 2, "tenant": "theirs"}
        assert client.post(f"{API}/jobs", json=body, headers=bearer(admin)).status_code == 201
        headers = bearer(admin)
        wait_until(lambda: bool(client.get(f"{API}/timeline", headers=headers).json()["spans"]))

        for path in ("/timeline", "/decisions", "/queue"):
            answer = client.get(API + path, headers=bearer(mine))
            assert answer.status_code == 200
            assert "theirs" not in answer.text
        span = client.get(f"{API}/timeline", headers=bearer(mine)).json()["spans"][0]
        assert span["job"] == "" and len(span["on"][0]["gpus"]) == 2
        for path in ("/jobs/theirs/file", "/timeline?job=theirs"):
            assert client.get(API + path, headers=bearer(mine)).status_code == 404


def _ask(client: httpx.Client, body: dict[str, str]) -> list[dict[str, Any]]:
    answer = client.post(f"{API}/what-if/stream", json=body)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_jobs_that_share_a_gpu_are_told_what_pace_was_promised() -> None:
    with serving("simulated:cluster=1x1:a100,speed=60", policy="las") as client:
        half = {"gpus": 1, "share": 0.5, "model": "resnet18", "hints": {"duration_s": 60_000}}
        first, second = (submit(client, **half) for _ in range(2))
        wait_until(lambda: get(client, f"/jobs/{second}")["state"] == "running")

        numbers = get(client, f"/jobs/{first}/explain")["numbers"]

        assert numbers["beside"] == 1
        assert 0.0 < numbers["predicted_pace"] <= 1.0


def test_the_past_is_replayed_on_the_machines_that_were_there() -> None:
    with serving("simulated:cluster=1x4:a100+1x4:t4,speed=3600", policy="fifo") as own:
        jobs = [submit(own, gpus=4, hints={"duration_s": 600}) for _ in range(4)]
        wait_until(lambda: get(own, f"/jobs/{jobs[-1]}")["state"] == "succeeded")
        before = own.post(f"{API}/what-if", json={"policy": "srtf"}).json()

        own.post(f"{API}/nodes/t4-1/drain").raise_for_status()
        after = own.post(f"{API}/what-if", json={"policy": "srtf"}).json()

        assert after["policies"]["fifo"]["makespan_h"] == before["policies"]["fifo"]["makespan_h"]
        assert "counted although drained now: t4-1" in after["note"]
        assert before["complete"] is True
        assert "drained" not in before["note"]


def test_a_job_tells_its_arguments(client: httpx.Client) -> None:
    job = submit(client, command=["train", "--lr", "0.1"], gpus=1)

    assert get(client, f"/jobs/{job}")["arguments"] == {"lr": "0.1"}


def test_names_are_taken_in_as_jobs_come(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    catch_up = JobNames.catch_up

    def counted(names: JobNames) -> None:
        before = len(names._ids)
        catch_up(names)
        taken.append(len(names._ids) - before)

    monkeypatch.setattr(JobNames, "catch_up", counted)
    with serving(STILL) as own:
        body = {"jobs": [{"name": f"job-{n}", "gpus": 1} for n in range(30)]}
        own.post(f"{API}/jobs/batch", json=body).raise_for_status()
        assert sum(taken) == 30

        taken.clear()
        assert get(own, "/jobs/job-7")["name"] == "job-7"

        assert taken == [0]  # a look-up has nothing to take in
