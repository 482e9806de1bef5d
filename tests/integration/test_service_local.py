"""The service with real processes: hostile texts do no harm, and jobs outlive it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import LIMIT_S, serving

API = "/api/v1"
LOCAL = "local:slots=4,warm=false,cpu=true,name=here"
NASTY = "$(touch pwned); `touch pwned` && touch pwned | ../../x \\ 'q' \"d\" \n * ~ 💥"


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def submit(client: httpx.Client, **fields: Any) -> str:
    answer = client.post(f"{API}/jobs", json=fields)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


def state(client: httpx.Client, job: str) -> str:
    found: str = client.get(f"{API}/jobs/{job}").json()["state"]
    return found


def test_shell_characters_in_names_arguments_and_variables_do_no_harm(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    script = "import os, sys; print(sys.argv[1] == os.environ['X'], end='')"
    with serving(LOCAL, tmp_path / "state") as client:
        job = submit(
            client,
            name=NASTY.replace("\n", " "),
            command=["python3", "-c", script, NASTY],
            env={"X": NASTY},
            workdir=str(work),
        )
        until(lambda: state(client, job) in ("succeeded", "failed"))

        found = client.get(f"{API}/jobs/{job}").json()
        assert found["state"] == "succeeded", found["reason"]
        assert client.get(f"{API}/jobs/{job}/logs").text == "True"
    assert not list(tmp_path.rglob("pwned"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state", "work"]


def test_logs_follow_a_job_and_can_be_read_from_a_point(tmp_path: Path) -> None:
    with serving(LOCAL, tmp_path) as client:
        job = submit(
            client, command=["sh", "-c", "echo one; sleep 0.5; echo two"], workdir=str(tmp_path)
        )
        until(lambda: client.get(f"{API}/jobs/{job}/logs").text.startswith("one"))

        with client.stream("GET", f"{API}/jobs/{job}/logs", params={"follow": True}) as answer:
            assert answer.read() == b"one\ntwo\n"
        assert client.get(f"{API}/jobs/{job}/logs", params={"offset": 4}).text == "two\n"
        assert client.get(f"{API}/jobs/{job}/logs", params={"rank": 1}).status_code == 404
        assert client.get(f"{API}/jobs/{job}/logs", params={"attempt": 7}).status_code == 404


def test_a_log_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with serving(LOCAL, tmp_path / "state") as client:
        job = submit(client, command=["true"], workdir=str(tmp_path))
        until(lambda: state(client, job) == "succeeded")
        (path,) = (tmp_path / "state").rglob("*0*.log")
        path.unlink()
        path.symlink_to(secret)

        assert client.get(f"{API}/jobs/{job}/logs").text == ""


def test_a_job_goes_on_while_the_service_is_away_and_is_adopted(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = f"echo begun; while [ ! -e {flag} ]; do sleep 0.05; done; echo done"
    with serving(LOCAL, tmp_path / "state") as client:
        job = submit(client, command=["sh", "-c", script], workdir=str(tmp_path))
        until(lambda: state(client, job) == "running")
    flag.touch()
    with serving(LOCAL, tmp_path / "state") as client:
        until(lambda: state(client, job) == "succeeded")

        found = client.get(f"{API}/jobs/{job}").json()
        assert (found["restarts"], found["attempt"]) == (0, 1)
        assert client.get(f"{API}/jobs/{job}/logs").text == "begun\ndone\n"


def test_a_job_that_cannot_run_here_is_refused_in_words(tmp_path: Path) -> None:
    with serving(LOCAL, tmp_path) as client:
        for body, said in (
            ({}, "no command"),
            ({"command": ["true"], "workdir": "/no/such"}, "not a folder"),
            ({"command": ["true"], "workdir": str(tmp_path), "gpus": 9}, "there are 4"),
        ):
            for path in ("/jobs", "/plan"):
                answer = client.post(API + path, json=body)
                assert answer.status_code == 422
                assert said in answer.json()["error"]
