"""Jobs that have not ended can be suspended, resumed and given another priority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import bearer, get, serving, submit, token
from tests.waiting import wait_until

API = "/api/v1"
LONG = "simulated:cluster=1x4:t4,speed=20"
MANY_HOURS = {"duration_s": 1e7}


class World:
    """An admin named ops, and users of the tenants `a` and `b`."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        admin = token(client, "admin")
        self._tokens = {
            "ops": admin,
            "ann": token(client, "user", "a", admin),
            "bob": token(client, "user", "b", admin),
        }

    def ask(self, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = bearer(self._tokens[who])
        return self.client.request(method, API + path, headers=headers, json=body)

    def job(self, name: str) -> Any:
        return self.ask("ops", "GET", f"/jobs/{name}").json()

    def until(self, name: str, state: str) -> None:
        wait_until(lambda: self.job(name)["state"] == state)


@pytest.fixture
def world() -> Iterator[World]:
    with serving(LONG, policy="fifo") as client:
        made = World(client)
        for name in ("first", "second"):
            body = {"id": name, "gpus": 4, "hints": MANY_HOURS}
            assert made.ask("ann", "POST", "/jobs", body).status_code == 201
        yield made


def test_a_suspended_job_gives_its_place_away_and_goes_on_when_it_is_resumed(world: World) -> None:
    world.until("first", "running")
    assert world.job("second")["state"] == "pending"

    answer = world.ask("ann", "POST", "/jobs/first/suspend")

    assert answer.status_code == 202
    world.until("second", "running")
    world.until("first", "suspended")
    first = world.job("first")
    assert first["reason"] == "suspended by its owner"
    assert (first["suspended_by"], first["allocation"]) == ("its owner", None)
    why = world.ask("ann", "GET", "/jobs/first/explain").json()
    assert why["blocked_by"] == "suspended"
    assert why["decided_by"].startswith("eligible_jobs, ")
    assert why["reason"] == first["reason"]
    line = world.ask("ann", "GET", "/queue").json()["jobs"]
    assert [row["id"] for row in line] == []
    spans = world.ask("ann", "GET", "/timeline?job=a:first").json()["spans"]
    assert [span["how"] for span in spans] == ["suspended"]

    assert world.ask("ann", "DELETE", "/jobs/second").status_code == 202
    assert world.job("first")["state"] == "suspended"
    assert world.ask("ann", "POST", "/jobs/first/resume").status_code == 202
    world.until("first", "running")
    assert world.job("first")["restarts"] == 1


def test_a_waiting_job_is_held_until_it_is_resumed(world: World) -> None:
    world.until("first", "running")

    world.ask("ops", "POST", "/jobs/second/suspend")
    ahead = world.ask("ann", "POST", "/what-if", {"start": "now", "nodes": "1x4:t4"}).json()
    world.ask("ann", "DELETE", "/jobs/first")

    assert [row["id"] for row in ahead["outlook"]] == ["a:first"]
    assert all(policy["avg_end_h"] for policy in ahead["policies"].values())
    assert "suspended and left out: 1" in ahead["note"]
    world.until("first", "cancelled")
    second = world.job("second")
    assert (second["state"], second["reason"]) == ("suspended", "suspended by admin 'admin of '")
    world.ask("ann", "POST", "/jobs/second/resume")
    world.until("second", "running")


def test_another_priority_counts_at_once_and_keeps_the_job(world: World) -> None:
    world.until("first", "running")
    third = {"id": "third", "gpus": 4, "hints": MANY_HOURS}
    assert world.ask("ann", "POST", "/jobs", third).status_code == 201

    refused = world.ask("ann", "PUT", "/jobs/third/priority", {"priority": "guaranteed"})
    assert refused.status_code == 403
    assert (refused.json()["field"], world.job("third")["priority"]) == ("priority", "normal")

    world.ask("ops", "PUT", "/quotas", {"guaranteed": {"a": 4}})
    answer = world.ask("ann", "PUT", "/jobs/third/priority", {"priority": "guaranteed"})
    assert answer.status_code == 202
    assert world.ask("ann", "DELETE", "/jobs/first").status_code == 202

    world.until("third", "running")
    assert world.job("third")["priority"] == "guaranteed"
    assert world.job("second")["state"] == "pending"
    assert world.ask("ann", "PUT", "/jobs/third/priority", {"priority": "high"}).status_code == 422
    # What was handed in may be handed in again, changed since or not; anything else may not.
    assert world.ask("ann", "POST", "/jobs", third).status_code == 201
    other = {**third, "priority": "guaranteed"}
    assert world.ask("ann", "POST", "/jobs", other).status_code == 409
    assert world.job("third")["priority"] == "guaranteed"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs/first/suspend", None),
        ("POST", "/jobs/first/resume", None),
        ("PUT", "/jobs/first/priority", {"priority": "opportunistic"}),
    ],
)
def test_only_its_tenant_commands_a_job_and_only_while_it_has_not_ended(
    world: World, method: str, path: str, body: Any
) -> None:
    assert world.ask("bob", method, path, body).status_code == 404
    world.ask("ann", "DELETE", "/jobs/first")

    late = world.ask("ann", method, path, body)

    assert late.status_code == 409
    assert late.json()["error"] == "job 'a:first' has been cancelled"


def test_suspended_jobs_and_priorities_outlast_a_service_that_ends(tmp_path: Path) -> None:
    with serving(LONG, tmp_path, policy="fifo") as client:
        for name in ("runs", "waits"):
            submit(client, id=name, gpus=4, hints=MANY_HOURS)
        wait_until(lambda: get(client, "/jobs/runs")["state"] == "running")
        assert client.post(f"{API}/jobs/runs/suspend").status_code == 202
        asked = client.put(f"{API}/jobs/waits/priority", json={"priority": "opportunistic"})
        assert asked.status_code == 202

    with serving(LONG, tmp_path, policy="fifo") as client:
        wait_until(lambda: get(client, "/jobs/waits")["state"] == "running")
        assert get(client, "/jobs/runs")["state"] == "suspended"
        assert get(client, "/jobs/waits")["priority"] == "opportunistic"
        assert submit(client, id="waits", gpus=4, hints=MANY_HOURS) == "waits"
        assert get(client, "/jobs/waits")["priority"] == "opportunistic"
        assert client.post(f"{API}/jobs/runs/resume").status_code == 202
        wait_until(lambda: get(client, "/jobs/runs")["state"] != "suspended")
