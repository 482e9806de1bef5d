"""Spot jobs on a service: a promised hour that is shown, and kept score of."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.serving import API, STILL, get, serving, submit
from tests.waiting import wait_until

LONG = {"hints": {"duration_s": 1e8}}
ENGINE = "simulated:cluster=1x4:t4,speed=60"


def state(client: httpx.Client, job: str) -> str:
    return str(get(client, f"/jobs/{job}")["state"])


def number(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    matching = [line for line in lines if line.startswith(f'weft_policy_number{{name="{name}"}}')]
    return float(matching[0].split()[-1]) if matching else -1.0


@pytest.mark.parametrize("policy", ["gfs|fifo", "gfs|weft"])
def test_a_spot_job_runs_is_told_its_promise_and_gives_way(policy: str) -> None:
    with serving(ENGINE, policy=policy) as client:
        submit(client, id="spot", gpus=4, kinds=["t4"], priority="spot", **LONG)
        wait_until(lambda: state(client, "spot") == "running")
        row = get(client, "/jobs/spot")
        why = get(client, "/jobs/spot/explain")

        assert row["priority"] == "spot"
        assert row["preemptible"]
        assert why["numbers"]["promised"] == "an hour without a stop with probability 0.9"

        submit(client, id="firm", gpus=4, kinds=["t4"], **LONG)
        wait_until(lambda: state(client, "firm") == "running")
        wait_until(lambda: state(client, "spot") == "preempted")

        wait_until(lambda: number(client, "promised_hours_broken") == 1.0)
        reason = str(get(client, "/jobs/spot")["reason"])
        assert "spot jobs hold" in reason or "none is free" in reason


def test_a_spot_job_cannot_refuse_to_be_stopped() -> None:
    with serving(STILL) as client:
        body = {"gpus": 1, "command": ["true"], "priority": "spot", "preemptible": False}
        answer = client.post(f"{API}/jobs", json=body)

        assert answer.status_code == 422
        assert "priority spot" in answer.text


def test_a_job_that_gives_way_to_all_is_promised_no_deadline() -> None:
    with serving(STILL) as client:
        due = {"gpus": 1, "command": ["true"], "deadline_s": 3600.0}
        for priority in ("spot", "opportunistic"):
            body = {**due, "priority": priority, "deadline_or": "decline"}
            answer = client.post(f"{API}/jobs", json=body)
            assert answer.status_code == 422
            assert "no deadline can be promised" in answer.text

        submit(client, id="plain", **{**due, "priority": "spot"})
        submit(client, id="firm", **due, deadline_or="warn", hints={"duration_s": 60.0})
        lowered = client.put(f"{API}/jobs/firm/priority", json={"priority": "spot"})

        assert lowered.status_code == 422
        assert "gives way to all others" in lowered.text
        assert get(client, "/jobs/firm")["priority"] == "normal"
