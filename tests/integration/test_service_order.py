"""Jobs that run after others, through the service."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.integration.serving import (
    API,
    FAST,
    LIMIT_S,
    STILL,
    Running,
    get,
    serving,
    submit,
    until,
)
from weft.service.main import Settings


def state(client: httpx.Client, job: str) -> str:
    found: str = get(client, f"/jobs/{job}")["state"]
    return found


def test_a_job_waits_for_the_one_it_names_and_says_so() -> None:
    with serving(STILL) as client:
        first = submit(client, name="prepare", gpus=1)
        second = submit(client, name="train", gpus=1, after={"ok": ["prepare"]})

        found = get(client, f"/jobs/{second}")
        assert found["state"] == "pending"
        assert found["reason"] == f"waits for {first} to end"
        assert found["after"] == {"ok": [first]}
        assert get(client, f"/jobs/{second}/explain")["blocked_by"] == "dependency"

        client.delete(f"{API}/jobs/{first}")
        until(lambda: state(client, second) == "cancelled")
        assert first in get(client, f"/jobs/{second}")["reason"]


def test_a_chain_of_jobs_runs_in_order() -> None:
    with serving(FAST) as client:
        first = submit(client, gpus=1, hints={"duration_s": 600})
        second = submit(client, gpus=1, hints={"duration_s": 600}, after={"ok": [first]})
        never = submit(client, gpus=1, after={"not_ok": [first]})
        until(lambda: state(client, second) == "succeeded")

        ended, started = get(client, f"/jobs/{first}")["ended"], get(client, f"/jobs/{second}")
        assert started["started"] >= ended
        assert state(client, never) == "cancelled"


@pytest.mark.parametrize("how", ["ok", "any", "not_ok"])
def test_a_job_that_nobody_knows_cannot_be_waited_for(how: str) -> None:
    with serving(STILL) as client:
        answer = client.post(f"{API}/jobs", json={"after": {how: ["nobody"]}})

        assert answer.status_code == 422
        told = answer.json()
        assert told["field"] == "after"
        assert f"after.{how}: there is no job 'nobody'" in told["error"]


def test_waiting_in_vain_is_refused_at_once() -> None:
    with serving(STILL) as client:
        first = submit(client)
        client.delete(f"{API}/jobs/{first}")
        until(lambda: state(client, first) == "cancelled")

        answer = client.post(f"{API}/jobs", json={"after": {"ok": [first]}})

        assert answer.status_code == 422
        assert "could never start" in answer.json()["error"]
        assert state(client, submit(client, after={"any": [first]})) != "cancelled"


def test_who_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    service = Running(Settings(engine=STILL, state=tmp_path, port=0))
    with httpx.Client(base_url=service.begin(), timeout=LIMIT_S, trust_env=False) as client:
        first = submit(client)
        second = submit(client, after={"ok": [first]})
    service.end()

    with serving(STILL, tmp_path) as client:
        assert get(client, f"/jobs/{second}")["reason"] == f"waits for {first} to end"
        client.delete(f"{API}/jobs/{first}")
        until(lambda: state(client, second) == "cancelled")
