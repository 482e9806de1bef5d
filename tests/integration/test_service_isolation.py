"""A tenant's token neither shows nor touches another tenant's jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.integration.serving import STILL, bearer, serving, token
from weft.app.serve.live import Settings
from weft.core.errors import InvalidConfig
from weft.service.main import create_app

API = "/api/v1"


@dataclass
class World:
    """Two tenants with a job each, and somebody of every role."""

    client: httpx.Client
    tokens: dict[str, str]

    def ask(self, who: str, method: str, path: str, **more: object) -> httpx.Response:
        headers = bearer(self.tokens.get(who, who))
        return self.client.request(method, API + path, headers=headers, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with serving(STILL) as client:
        admin = token(client, "admin")
        tokens = {
            "admin": admin,
            "ann": token(client, "user", "a", admin),
            "bob": token(client, "user", "b", admin),
            "looker": token(client, "viewer", "a", admin),
            "auditor": token(client, "viewer", "*", admin),
        }
        world = World(client, tokens)
        for who, name in (("ann", "job-a"), ("bob", "job-b")):
            body = {"id": name, "env": {"SECRET": f"of {who}"}, "command": ["x"]}
            assert world.ask(who, "POST", "/jobs", json=body).status_code == 201
        yield world


def test_without_a_token_or_with_a_wrong_one_nothing_is_told(world: World) -> None:
    for who in ("", "weft_nonsense", "bob;"):
        for path in ("/jobs", "/jobs/job-a", "/cluster", "/nodes", "/events", "/accounting"):
            assert world.ask(who, "GET", path).status_code == 401
    assert world.client.get("/metrics").status_code == 401
    assert world.client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/job-a"),
        ("GET", "/jobs/job-a/logs"),
        ("GET", "/jobs/job-a/logs?follow=true"),
        ("GET", "/jobs/job-a/events"),
        ("GET", "/jobs/job-a/explain"),
        ("DELETE", "/jobs/job-a"),
    ],
)
def test_another_tenants_job_is_as_unknown_as_one_that_never_was(
    world: World, method: str, path: str
) -> None:
    other = world.ask("bob", method, path)
    never = world.ask("bob", method, path.replace("job-a", "job-z"))

    assert other.status_code == never.status_code == 404
    assert other.text.replace("job-a", "job-z") == never.text
    assert world.ask("ann", "GET", "/jobs/job-a").json()["state"] == "running"


def test_lists_accounts_and_events_hold_the_callers_own_jobs_only(world: World) -> None:
    assert [j["id"] for j in world.ask("bob", "GET", "/jobs").json()["jobs"]] == ["b:job-b"]
    assert world.ask("bob", "GET", "/jobs?tenant=a").json()["jobs"] == []
    assert world.ask("bob", "GET", "/jobs?after=a:job-a").status_code == 422
    accounts = world.ask("bob", "GET", "/accounting").json()
    assert [t["tenant"] for t in accounts["tenants"]] == ["b"]
    assert "job-a" not in world.ask("bob", "GET", "/accounting?format=csv").text
    stream = world.ask("bob", "GET", "/events?since=0&follow=false").text
    assert "job-b" in stream
    assert "job-a" not in stream
    everything = world.ask("auditor", "GET", "/events?since=0&follow=false").text
    assert "job-a" in everything
    assert "job-b" in everything


def test_variables_are_told_to_nobody(world: World) -> None:
    for who in ("ann", "admin"):
        for path in ("/jobs/job-a", "/jobs/job-a/events", "/events?since=0&follow=false"):
            assert "of ann" not in world.ask(who, "GET", path).text


def test_nobody_submits_for_another_tenant(world: World) -> None:
    assert world.ask("bob", "POST", "/jobs", json={"tenant": "a"}).status_code == 403
    assert world.ask("bob", "POST", "/plan", json={"tenant": "a"}).status_code == 403


def test_the_id_of_another_tenants_job_is_free_and_tells_nothing(world: World) -> None:
    asked = {"id": "job-a", "command": ["x"]}

    taken = world.ask("bob", "POST", "/jobs", json=asked)
    free = world.ask("bob", "POST", "/jobs", json={**asked, "id": "job-z"})
    theirs = world.ask("bob", "POST", "/jobs", json={**asked, "id": "a:job-a"})
    nobodys = world.ask("bob", "POST", "/jobs", json={**asked, "id": "a:job-z"})

    assert taken.json()["id"] == "b:job-a"
    assert taken.text.replace("job-a", "job-z") == free.text
    assert theirs.status_code == nobodys.status_code == 422
    assert theirs.text.replace("job-a", "job-z") == nobodys.text
    assert world.ask("bob", "POST", "/jobs", json=asked).json()["id"] == "b:job-a"
    changed = world.ask("bob", "POST", "/jobs", json={**asked, "command": ["y"]})
    assert changed.status_code == 409  # his own
    for job in ("b:job-a", "job-z"):
        assert world.ask("bob", "DELETE", f"/jobs/{job}").status_code == 202


def test_a_viewer_looks_and_does_nothing(world: World) -> None:
    assert world.ask("looker", "GET", "/jobs/job-a").status_code == 200
    assert world.ask("looker", "DELETE", "/jobs/job-a").status_code == 403
    assert world.ask("looker", "POST", "/jobs", json={}).status_code == 403
    assert world.ask("auditor", "DELETE", "/jobs/job-a").status_code == 403


@pytest.mark.parametrize("who", ["ann", "looker", "auditor"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/tokens", None),
        ("POST", "/tokens", {"role": "admin"}),
        ("DELETE", "/tokens/x", None),
        ("GET", "/quotas", None),
        ("PUT", "/quotas", {}),
        ("PUT", "/policy", {"policy": "las"}),
        ("POST", "/nodes/a100-0/drain", None),
        ("GET", "/webhooks", None),
        ("POST", "/webhooks", {"url": "http://127.0.0.1:9/"}),
    ],
)
def test_what_is_the_admins_is_refused_to_others(
    world: World, who: str, method: str, path: str, body: object
) -> None:
    assert world.ask(who, method, path, json=body).status_code == 403


def test_explanations_do_not_name_other_tenants_jobs(world: World) -> None:
    made = world.ask("bob", "POST", "/jobs", json={"id": "big", "gpus": 8, "kinds": ["a100"]})
    assert made.status_code == 201

    answer = world.ask("bob", "GET", "/jobs/big/explain")

    assert answer.status_code == 200
    assert "job-a" not in answer.text
    world.ask("bob", "DELETE", "/jobs/big")


def test_metrics_of_all_tenants_are_not_for_one(world: World) -> None:
    assert world.client.get("/metrics", headers=bearer(world.tokens["ann"])).status_code == 403
    text = world.client.get("/metrics", headers=bearer(world.tokens["auditor"])).text
    assert 'weft_gpu_seconds_total{tenant="a"}' in text


def test_a_revoked_token_is_worth_nothing_at_once(world: World) -> None:
    secret = token(world.client, "user", "a", world.tokens["admin"])
    (made,) = (
        listed["id"] for listed in world.ask("admin", "GET", "/tokens").json()["tokens"][-1:]
    )
    assert world.ask(secret, "GET", "/jobs").status_code == 200

    assert world.ask("admin", "DELETE", f"/tokens/{made}").status_code == 200

    assert world.ask(secret, "GET", "/jobs").status_code == 401


def test_without_tokens_a_web_page_of_another_site_is_not_answered() -> None:
    with serving(STILL) as client:
        evil = {"Origin": "https://evil.example"}
        rebound = {"Host": "evil.example"}

        assert client.get(f"{API}/jobs").status_code == 200
        assert client.get(f"{API}/jobs", headers=evil).status_code == 403
        assert client.get(f"{API}/jobs", headers=rebound).status_code == 403
        other_page = {"Origin": "http://localhost:3000"}  # of this machine, and not ours
        assert client.get(f"{API}/jobs", headers=other_page).status_code == 403


def test_an_open_address_is_refused_without_tokens(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="without tokens"):
        create_app(Settings(engine=STILL, state=tmp_path, host="0.0.0.0"))
