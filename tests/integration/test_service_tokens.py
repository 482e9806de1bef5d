"""Tokens that end: revoked, expired, rotated; and what the audit log keeps of it all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.serving import STILL, bearer, serving, token
from tests.waiting import LIMIT_S

API = "/api/v1"
ENDLESS = ["sh", "-c", "echo begun; sleep 600"]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with serving("local:cpu=true,slots=2,warm=false", tmp_path / "state") as client:
        yield client


def made(client: httpx.Client, by: str, **body: object) -> dict[str, str]:
    answer = client.post(f"{API}/tokens", json=body, headers=bearer(by))
    assert answer.status_code == 201, answer.text
    created: dict[str, str] = answer.json()
    return created


def listening(client: httpx.Client, path: str, secret: str) -> tuple[threading.Thread, list[str]]:
    """A stream that is read to its end elsewhere; it has begun when this returns."""
    heard: list[str] = []
    begun = threading.Event()

    def read() -> None:
        with client.stream("GET", API + path, headers=bearer(secret)) as answer:
            for text in answer.iter_text():
                heard.append(text)
                begun.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(LIMIT_S)
    return thread, heard


def test_revoking_a_token_ends_its_streams_and_no_others(client: httpx.Client) -> None:
    admin = token(client, "admin")
    ann, bob = (made(client, admin, role="user", tenant=name) for name in ("a", "b"))
    body = {"id": "one", "command": ENDLESS}
    client.post(f"{API}/jobs", json=body, headers=bearer(ann["token"]))
    until = time.monotonic() + LIMIT_S
    while client.get(f"{API}/jobs/one/logs", headers=bearer(ann["token"])).text != "begun\n":
        assert time.monotonic() < until
        time.sleep(0.05)
    events, _ = listening(client, "/events", ann["token"])
    log, _ = listening(client, "/jobs/one/logs?follow=true", ann["token"])
    other, _ = listening(client, "/events", bob["token"])

    client.delete(f"{API}/tokens/{ann['id']}", headers=bearer(admin))

    events.join(LIMIT_S)
    log.join(LIMIT_S)
    assert not events.is_alive()
    assert not log.is_alive()
    assert other.is_alive()
    client.delete(f"{API}/jobs/a:one", headers=bearer(admin))
    client.delete(f"{API}/tokens/{bob['id']}", headers=bearer(admin))
    other.join(LIMIT_S)


def test_a_stream_ends_when_its_token_expires() -> None:
    with serving(STILL) as client:
        admin = token(client, "admin")
        short = made(client, admin, role="user", tenant="a", expires_s=1.0)

        stream, heard = listening(client, "/events", short["token"])

        stream.join(LIMIT_S)
        assert not stream.is_alive()
        assert heard[-1] == ": the token is no longer valid\n\n"
        late = client.get(f"{API}/jobs", headers=bearer(short["token"]))
        assert late.status_code == 401
        assert "expired" in late.json()["hint"]


def test_the_first_token_ends_the_streams_of_those_without_one() -> None:
    with serving(STILL) as client:
        stream, _ = listening(client, "/events", "")

        token(client, "admin")

        stream.join(LIMIT_S)
        assert not stream.is_alive()


def test_a_rotated_token_and_its_successor_both_work_for_a_while() -> None:
    with serving(STILL) as client:
        admin = token(client, "admin")
        old = made(client, admin, role="user", tenant="a", name="ann")
        stream, _ = listening(client, "/events", old["token"])

        path = f"{API}/tokens/{old['id']}/rotate"
        new = client.post(path, json={"overlap_s": 2.0}, headers=bearer(admin)).json()

        assert (new["tenant"], new["name"], new["expires"]) == ("a", "ann", 0.0)
        for secret in (old["token"], new["token"]):
            assert client.get(f"{API}/jobs", headers=bearer(secret)).status_code == 200
        stream.join(LIMIT_S)
        assert not stream.is_alive()
        assert client.get(f"{API}/jobs", headers=bearer(old["token"])).status_code == 401
        assert client.get(f"{API}/jobs", headers=bearer(new["token"])).status_code == 200


def test_the_audit_log_says_who_did_what_from_where(tmp_path: Path) -> None:
    with serving(STILL, tmp_path) as client:
        admin = token(client, "admin")
        ann = made(client, admin, role="user", tenant="a", name="ann")
        job = {"id": "one", "command": ["x"], "env": {"KEY": "hush-hush"}}
        client.post(f"{API}/jobs", json=job, headers=bearer(ann["token"]))
        client.get(f"{API}/jobs", headers=bearer(ann["token"]))
        client.post(f"{API}/plan", json={"command": ["x"]}, headers=bearer(ann["token"]))
        client.put(f"{API}/policy", json={"policy": "las"}, headers=bearer(ann["token"]))
        client.delete(f"{API}/jobs/one", headers=bearer("weft_wrong"))
        client.delete(f"{API}/jobs/one", headers=bearer(ann["token"]))

        requests = client.get(f"{API}/audit", headers=bearer(admin)).json()["requests"]
        failed = client.get(f"{API}/audit?failed=true", headers=bearer(admin)).json()["requests"]
        named = client.get(f"{API}/audit?name=ann&about=one", headers=bearer(admin)).json()
        refused = client.get(f"{API}/audit", headers=bearer(ann["token"]))

    def summary(entry: dict[str, object]) -> tuple[object, ...]:
        return tuple(entry[key] for key in ("name", "tenant", "method", "path", "about", "status"))

    assert [summary(entry) for entry in requests] == [
        ("", "*", "POST", "/api/v1/tokens", "", 201),
        ("admin of ", "*", "POST", "/api/v1/tokens", "", 201),
        ("ann", "a", "POST", "/api/v1/jobs", "a:one", 201),
        ("ann", "a", "PUT", "/api/v1/policy", "", 403),
        ("", "", "DELETE", "/api/v1/jobs/one", "", 401),
        ("ann", "a", "DELETE", "/api/v1/jobs/one", "a:one", 202),
    ]
    assert {entry["address"] for entry in requests} == {"127.0.0.1"}
    assert [entry["status"] for entry in failed] == [403, 401]
    assert [entry["status"] for entry in named["requests"]] == [201, 202]
    assert refused.status_code == 403
    kept = "".join(path.read_text() for path in sorted(tmp_path.glob("requests*.jsonl")))
    lines = sorted(map(json.loads, kept.splitlines()), key=lambda entry: entry["at"])
    assert lines == requests
    assert "hush-hush" not in kept
    assert "weft_" not in kept


def test_the_audit_log_goes_on_after_a_restart(tmp_path: Path) -> None:
    with serving(STILL, tmp_path) as client:
        client.put(f"{API}/policy", json={"policy": "las"})
    with serving(STILL, tmp_path) as client:
        client.put(f"{API}/policy", json={"policy": "fifo"})

        requests = client.get(f"{API}/audit").json()["requests"]

    assert [entry["path"] for entry in requests] == ["/api/v1/policy"] * 2
