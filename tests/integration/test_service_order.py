"""Jobs that run after others, through the service."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.integration.serving import API, FAST, STILL, Running, get, serving, submit
from tests.waiting import LIMIT_S, wait_until
from weft.app.serve.live import Settings


def state(client: httpx.Client, job: str) -> str:
    word: str = get(client, f"/jobs/{job}")["state"]
    return word


def test_a_job_waits_for_the_one_it_names_and_says_so() -> None:
    with serving(STILL) as client:
        first = submit(client, name="prepare", gpus=1)
        second = submit(client, name="train", gpus=1, after={"ok": ["prepare"]})

        answer = get(client, f"/jobs/{second}")
        assert answer["state"] == "pending"
        assert answer["reason"] == f"waits for {first} to end"
        assert answer["after"] == {"ok": [first]}
        assert get(client, f"/jobs/{second}/explain")["blocked_by"] == "dependency"

        client.delete(f"{API}/jobs/{first}")
        wait_until(lambda: state(client, second) == "cancelled")
        assert first in get(client, f"/jobs/{second}")["reason"]


def test_a_chain_of_jobs_runs_in_order() -> None:
    with serving(FAST) as client:
        first = submit(client, gpus=1, hints={"duration_s": 600})
        second = submit(client, gpus=1, hints={"duration_s": 600}, after={"ok": [first]})
        never = submit(client, gpus=1, after={"not_ok": [first]})
        wait_until(lambda: state(client, second) == "succeeded")

        ended, started = get(client, f"/jobs/{first}")["ended"], get(client, f"/jobs/{second}")
        assert started["started"] >= ended
        assert state(client, never) == "cancelled"


@pytest.mark.parametrize("how", ["ok", "any", "not_ok"])
def test_a_job_that_nobody_knows_cannot_be_waited_for(how: str) -> None:
    with serving(STILL) as client:
        answer = client.post(f"{API}/jobs", json={"after": {how: ["nobody"]}})

        assert answer.status_code == 422
        problem = answer.json()
        assert problem["field"] == "after"
        assert f"after.{how}: there is no job 'nobody'" in problem["error"]


def test_who_would_wait_in_vain_is_a_cancelled_job_that_says_why() -> None:
    with serving(STILL) as client:
        first = submit(client)
        client.delete(f"{API}/jobs/{first}")
        wait_until(lambda: state(client, first) == "cancelled")

        late = submit(client, after={"ok": [first]})

        wait_until(lambda: state(client, late) == "cancelled")
        why = client.get(f"{API}/jobs/{late}").json()["reason"]
        assert why == f"it was to run after {first} succeeded, and {first} did not"
        again = client.delete(f"{API}/jobs/{late}").json()
        assert again["changed"] is False
        assert "was cancelled before: there is nothing to cancel" in again["done"]
        assert state(client, submit(client, after={"any": [first]})) != "cancelled"


def test_who_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    service = Running(Settings(engine=STILL, state=tmp_path, port=0))
    with httpx.Client(
        base_url=service.begin(), timeout=LIMIT_S, trust_env=False, verify=False
    ) as client:
        first = submit(client)
        second = submit(client, after={"ok": [first]})
    service.end()

    with serving(STILL, tmp_path) as client:
        assert get(client, f"/jobs/{second}")["reason"] == f"waits for {first} to end"
        client.delete(f"{API}/jobs/{first}")
        wait_until(lambda: state(client, second) == "cancelled")


def test_a_deadline_is_shown_and_said_to_be_missed() -> None:
    with serving("simulated:cluster=1x1:a100,speed=60") as client:
        job = submit(client, hints={"duration_s": 36_000}, deadline_s=60.0)
        late = submit(client, deadline_s=60.0)  # it never comes to run
        good = submit(client, deadline_s=1e6)
        wait_until(lambda: get(client, f"/jobs/{late}")["deadline_missed"])
        wait_until(lambda: get(client, f"/jobs/{job}")["deadline_missed"])

        answer = get(client, f"/jobs/{job}")
        assert answer["deadline"] == pytest.approx(answer["submitted"] + 60.0, abs=30.0)
        assert not get(client, f"/jobs/{good}")["deadline_missed"]
        story = [event["event"] for event in get(client, f"/jobs/{late}/events")["events"]]
        assert "DeadlineMissed" in story
        assert "weft_deadlines_missed_total 2" in client.get("/metrics").text


def test_a_gang_on_two_nodes_runs_there_waits_for_them_and_is_refused_where_there_is_one() -> None:
    with serving("simulated:cluster=2x4:v100,speed=1") as client:
        first = submit(client, nodes=2, gpus=6, hints={"duration_s": 36_000})
        wait_until(lambda: get(client, f"/jobs/{first}")["state"] == "running")
        parts = get(client, f"/jobs/{first}")["allocation"]
        second = submit(client, nodes=1, gpus=2)
        wait_until(lambda: get(client, f"/jobs/{second}")["state"] == "pending")

        assert [(part["node"], len(part["gpus"])) for part in parts] == [
            ("v100-0", 3),
            ("v100-1", 3),
        ]
        assert get(client, f"/jobs/{second}")["nodes"] == 1
        why = get(client, f"/jobs/{second}/explain")["reason"]
        assert why.startswith("waits for 2 GPUs on 1 node; no node has 2 free")

    with serving("simulated:cluster=1x4:v100,speed=1") as client:
        answer = client.post(f"{API}/jobs", json={"nodes": 2, "gpus": 4})
        assert answer.status_code == 422
        assert "asks for 2 nodes with 2 GPUs each; there is 1" in answer.json()["error"]
