"""The service puts jobs to sleep instead of throwing their work away."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, serving
from tests.waiting import LIMIT_S, wait_until
from weft.wire.attempt import folder_of

LOCAL = "local:slots=1,warm=false,cpu=true,name=node-3"
ENGINES = pytest.mark.parametrize(
    ("engine", "node"),
    [(LOCAL, "node-3"), ("processes:nodes=1,slots=1", "n1")],
    ids=["local", "fleet"],
)
COUNT = "import time\nfor i in range({}):\n    print(i, flush=True)\n    time.sleep(0.02)\n"


def submit(client: httpx.Client, name: str, steps: int) -> str:
    command = ["python", "-c", COUNT.format(steps)]
    body = {"id": name, "gpus": 1, "workdir": "/", "command": command}
    answer = client.post(f"{API}/jobs", json=body)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


def job(client: httpx.Client, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"{API}/jobs/{name}").json()
    return answer


def until(client: httpx.Client, name: str, state: str) -> dict[str, Any]:
    end = time.monotonic() + LIMIT_S
    while (answer := job(client, name))["state"] != state:
        assert time.monotonic() < end, answer
        time.sleep(0.02)
    return answer


def printed(state: Path, name: str) -> list[str]:
    logs = folder_of(state, name, 1).glob("**/rank-0.log")
    return [word for log in logs for word in log.read_text().split()]


def stands_still(state: Path, name: str) -> bool:
    """Whether nothing is printed for a while; what was printed before is read by and by."""
    before = printed(state, name)
    time.sleep(0.3)
    return printed(state, name) == before


def wait_for_steps(state: Path, name: str, least: int) -> None:
    end = time.monotonic() + LIMIT_S
    while len(printed(state, name)) < least:
        assert time.monotonic() < end
        time.sleep(0.02)


@ENGINES
def test_a_plain_job_that_is_suspended_goes_on_where_it_was(
    tmp_path: Path, engine: str, node: str
) -> None:
    with serving(engine, tmp_path, "fifo") as client:
        name = submit(client, "plain", 300)
        wait_for_steps(tmp_path, name, 20)
        until(client, name, "running")

        done = client.post(f"{API}/jobs/{name}/suspend").json()["done"]
        answer = until(client, name, "suspended")

        assert "frozen where it is" in done
        assert f"asleep on {node}" in answer["reason"]
        assert "back at once" in answer["reason"]
        assert f"asleep on {node}" in client.get(f"{API}/jobs/{name}/explain").json()["reason"]
        wait_until(lambda: stands_still(tmp_path, name), "it prints nothing more")

        done = client.post(f"{API}/jobs/{name}/resume").json()["done"]
        ended = until(client, name, "succeeded")

        assert f"asleep on {node}" in done
        assert printed(tmp_path, name) == [str(i) for i in range(300)]
        assert (ended["attempt"], ended["restarts"]) == (1, 0)


@ENGINES
def test_a_job_that_sleeps_is_found_again_and_can_be_cancelled(
    tmp_path: Path, engine: str, node: str
) -> None:
    with serving(engine, tmp_path, "fifo") as client:
        name, other = submit(client, "first", 100_000), submit(client, "second", 120)
        wait_for_steps(tmp_path, name, 5)
        until(client, name, "running")  # a job that only starts is stopped, for it has done nothing
        client.post(f"{API}/jobs/{name}/suspend")
        until(client, name, "suspended")
        wait_for_steps(tmp_path, other, 5)

    with serving(engine, tmp_path, "fifo") as client:
        wait_until(lambda: f"asleep on {node}" in until(client, name, "suspended")["reason"])
        wait_until(lambda: stands_still(tmp_path, name), "it prints nothing more")

        client.delete(f"{API}/jobs/{name}")

        until(client, name, "cancelled")
        until(client, other, "succeeded")
        assert printed(tmp_path, other) == [str(i) for i in range(120)]


def test_work_is_not_thrown_away_unless_somebody_agrees(tmp_path: Path) -> None:
    with serving(f"{LOCAL},sleep=false", tmp_path, "fifo") as client:
        name = submit(client, "plain", 100_000)
        wait_for_steps(tmp_path, name, 5)

        refused = client.post(f"{API}/jobs/{name}/suspend")

        assert refused.status_code == 409
        assert refused.json()["field"] == "restart"
        assert "lose all its work" in refused.json()["error"]
        assert job(client, name)["state"] == "running"
        agreed = client.post(f"{API}/jobs/{name}/suspend", json={"restart": True})
        assert agreed.status_code == 202
        until(client, name, "suspended")
        client.delete(f"{API}/jobs/{name}")
