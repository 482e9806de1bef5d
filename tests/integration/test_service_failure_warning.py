"""A job that will probably fail as its like did is submitted with a warning."""

from __future__ import annotations

from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until


def test_who_submits_what_failed_five_times_is_warned_and_not_refused() -> None:
    with serving("simulated:cluster=1x4:a100,speed=60") as client:
        body = {"gpus": 1, "command": ["python", "train.py"], "retries": 0, "share": "never"}
        hints = {"duration_s": 60, "fails_at_s": 0.1}
        for _ in range(5):
            job = submit(client, **body, hints=hints)
            wait_until(lambda job=job: get(client, f"/jobs/{job}")["state"] == "failed")  # type: ignore[misc]

        made = client.post(f"{API}/jobs", json=body)

        assert made.status_code == 201
        assert made.json()["warning"].startswith("likely to fail: all of ")
        other = client.post(f"{API}/jobs", json={**body, "command": ["ls"], "tenant": "b"})
        assert other.status_code == 201
