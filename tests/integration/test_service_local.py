"""The service with real processes: hostile texts do no harm, and jobs outlive it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import Running, serving
from tests.waiting import wait_until
from weft.app.serve.live import Live, Settings
from weft.app.state.upkeep import make_backup, restore_backup
from weft.core.errors import InvalidConfig

API = "/api/v1"
LOCAL = "local:slots=4,warm=false,cpu=true,name=here"
NASTY = "$(touch pwned); `touch pwned` && touch pwned | ../../x \\ 'q' \"d\" \n * ~ 💥"


def submit(client: httpx.Client, **fields: Any) -> str:
    answer = client.post(f"{API}/jobs", json=fields)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


def state(client: httpx.Client, job: str) -> str:
    word: str = client.get(f"{API}/jobs/{job}").json()["state"]
    return word


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
        wait_until(lambda: state(client, job) in ("succeeded", "failed"))

        answer = client.get(f"{API}/jobs/{job}").json()
        assert answer["state"] == "succeeded", answer["reason"]
        assert client.get(f"{API}/jobs/{job}/logs").text == "True"
    assert not list(tmp_path.rglob("pwned"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state", "work"]


def test_logs_follow_a_job_and_can_be_read_from_a_point(tmp_path: Path) -> None:
    with serving(LOCAL, tmp_path) as client:
        job = submit(
            client, command=["sh", "-c", "echo one; sleep 0.5; echo two"], workdir=str(tmp_path)
        )
        wait_until(lambda: client.get(f"{API}/jobs/{job}/logs").text.startswith("one"))

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
        wait_until(lambda: state(client, job) == "succeeded")
        (path,) = (tmp_path / "state").rglob("*0*.log")
        path.unlink()
        path.symlink_to(secret)

        assert client.get(f"{API}/jobs/{job}/logs").text == ""


def test_a_job_goes_on_while_the_service_is_away_and_is_adopted(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = f"echo begun; while [ ! -e {flag} ]; do sleep 0.05; done; echo done"
    with serving(LOCAL, tmp_path / "state") as client:
        job = submit(client, command=["sh", "-c", script], workdir=str(tmp_path))
        wait_until(lambda: state(client, job) == "running")
    flag.touch()
    with serving(LOCAL, tmp_path / "state") as client:
        wait_until(lambda: state(client, job) == "succeeded")

        answer = client.get(f"{API}/jobs/{job}").json()
        assert (answer["restarts"], answer["attempt"]) == (0, 1)
        assert client.get(f"{API}/jobs/{job}/logs").text == "begun\ndone\n"


def test_a_job_that_cannot_run_here_is_refused_in_words(tmp_path: Path) -> None:
    with serving(LOCAL, tmp_path) as client:
        for body, message in (
            ({}, "no command"),
            ({"command": ["true"], "workdir": "/no/such"}, "not a folder"),
            ({"command": ["true"], "workdir": str(tmp_path), "gpus": 9}, "there are 4"),
        ):
            for path in ("/jobs", "/plan"):
                answer = client.post(API + path, json=body)
                assert answer.status_code == 422
                assert message in answer.json()["error"]


def start(folder: Path) -> None:
    async def go() -> None:
        await Live(Settings(engine=LOCAL, state=folder)).open()

    asyncio.run(go())


def running_pid(folder: Path) -> int:
    pid: int = json.loads((folder / "claim.json").read_text())["pid"]
    return pid


def test_a_running_job_is_not_killed_by_a_service_whose_log_is_gone_or_old(tmp_path: Path) -> None:
    state_folder, copy = tmp_path / "state", tmp_path / "copy"
    with serving(LOCAL, state_folder) as client:
        first = submit(client, command=["true"], workdir=str(tmp_path))
        wait_until(lambda: state(client, first) == "succeeded")
        make_backup(state_folder, copy)
        job = submit(client, command=["sleep", "1000"], workdir=str(tmp_path))
        wait_until(lambda: state(client, job) == "running")
    agent = running_pid(state_folder / "jobs" / job / "1")
    away = tmp_path / "away"
    away.mkdir()

    log = state_folder / "events.db"
    log.write_bytes(b"rust" + log.read_bytes()[4:])
    with pytest.raises(InvalidConfig, match="cannot be read"):
        start(state_folder)
    for path in state_folder.glob("events.db*"):
        path.rename(away / path.name)
    with pytest.raises(InvalidConfig, match="missing, but"):
        start(state_folder)
    restore_backup(copy, state_folder)
    with pytest.raises(InvalidConfig, match=f"run here that are not in the log: {job}"):
        start(state_folder)

    assert alive(agent)
    settings = Settings(engine=LOCAL, state=state_folder, port=0, end_unknown=True)
    service = Running(settings)
    service.begin()
    wait_until(lambda: not alive(agent))
    service.end()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
