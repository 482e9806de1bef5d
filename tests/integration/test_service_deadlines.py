"""Deadlines that a service promises, or declines with what is possible."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.serving import API, STILL, get, serving, submit
from tests.waiting import wait_until

DAY = 86_400.0


def ask(client: httpx.Client, name: str, **more: Any) -> str:
    hints = {"duration_s": DAY}
    fields = {"id": name, "gpus": 4, "kinds": ["t4"], "hints": hints, "deadline_s": 1.5 * DAY}
    return submit(client, **{**fields, "deadline_or": "decline", "preemptible": True, **more})


def state(client: httpx.Client, job: str) -> str:
    return str(get(client, f"/jobs/{job}")["state"])


@pytest.mark.parametrize("policy", ["weft", "fifo", "elasticflow", "gfs|fifo"])
def test_what_fits_is_promised_and_what_does_not_is_declined(policy: str) -> None:
    with serving(STILL, policy=policy) as client:
        ask(client, "first")
        wait_until(lambda: state(client, "first") == "running")
        ask(client, "second")
        wait_until(lambda: state(client, "second") == "failed")
        ask(client, "late", deadline_or="warn")
        ask(client, "later", deadline_s=2.5 * DAY)
        wait_until(lambda: state(client, "later") == "pending")

        declined = get(client, "/jobs/second")
        assert "rejected: it cannot end within 36.0 h: not before 48.0 h" in declined["reason"]
        assert "4 more t4 GPUs" in declined["reason"]
        assert state(client, "first") == "running"
        assert state(client, "late") == "pending"
        assert get(client, "/jobs/late")["deadline_or"] == "warn"


def test_nobody_says_what_to_do_about_no_deadline() -> None:
    with serving(STILL) as client:
        answer = client.post(f"{API}/jobs", json={"gpus": 1, "deadline_or": "warn"})

        assert answer.status_code == 422
        assert "give deadline_s" in answer.text
