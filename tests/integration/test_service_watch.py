"""Watching the cluster: what changed, told in short, to those who may see it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, STILL, bearer, get, serving, submit, token
from tests.waiting import wait_until

Message = tuple[str, str, dict[str, Any]]


@contextmanager
def watching(client: httpx.Client, secret: str = "", last: str = "") -> Iterator[Iterator[Message]]:
    headers = {**bearer(secret), **({"Last-Event-ID": last} if last else {})}
    with client.stream("GET", f"{API}/watch", headers=headers) as answer:
        assert answer.status_code == 200
        yield messages(answer)


def messages(answer: httpx.Response) -> Iterator[Message]:
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line and "data" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            fields = {}
        elif line and not line.startswith(":"):
            key, _, value = line.partition(": ")
            fields[key] = value


def state_of(heard: Iterator[Message], job: str, state: str) -> Message:
    """The first message in which a job is in a state."""
    for message in heard:
        if any(row["id"] == job and row["state"] == state for row in message[2]["jobs"]):
            return message
    raise AssertionError("the stream ended")


def test_who_watches_is_told_everything_and_then_what_changes() -> None:
    with serving(STILL) as client:
        first = submit(client, gpus=4, kinds=["a100"])

        with watching(client) as heard:
            kind, _, whole = next(heard)
            second = submit(client, gpus=8, kinds=["a100"])
            update, _, then = state_of(heard, second, "pending")

        assert (kind, update) == ("snapshot", "update")
        assert [row["id"] for row in whole["jobs"]] == [first]
        assert [n["id"] for n in whole["nodes"]] == [
            n["id"] for n in get(client, "/nodes")["nodes"]
        ]
        row = next(job for job in then["jobs"] if job["id"] == second)
        assert "8 a100 GPUs" in then["reasons"][str(row["why"])]


def test_of_many_jobs_those_on_devices_come_first_and_the_others_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.service.streams.live_updates.PART", 2)
    with serving("simulated:cluster=2x4:a100+1x4:t4,speed=1", policy="fifo") as client:
        hours = {"duration_s": 1e6}
        first = submit(client, gpus=8, kinds=["a100"], hints=hours)
        waiting = [submit(client, gpus=8, kinds=["a100"], hints=hours)]
        last = submit(client, gpus=4, kinds=["t4"], hints=hours, priority="guaranteed")
        waiting += [submit(client, gpus=8, kinds=["a100"], hints=hours) for _ in range(2)]
        for job in (first, last):
            wait_until(lambda job=job: get(client, f"/jobs/{job}")["state"] == "running")  # type: ignore[misc]

        with watching(client) as heard:
            parts = [next(heard) for _ in range(3)]

        assert [kind for kind, _, _ in parts] == ["snapshot", "update", "update"]
        assert [bool(number) for _, number, _ in parts] == [False, False, True]
        ids = [[row["id"] for row in part["jobs"]] for _, _, part in parts]
        assert ids == [[first, last], waiting[:2], waiting[2:]]
        assert [len(part["nodes"]) for _, _, part in parts] == [3, 0, 0]


def test_a_job_that_leaves_is_shown_where_it_still_is() -> None:
    with serving(STILL, policy="fifo") as client:  # a checkpoint takes for ever
        job = submit(client, gpus=4, kinds=["t4"])
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "running")

        with watching(client) as heard:
            next(heard)
            assert client.post(f"{API}/jobs/{job}/suspend").status_code == 202
            _, _, change = state_of(heard, job, "checkpointing")

        row = next(job_row for job_row in change["jobs"] if job_row["id"] == job)
        assert [part["gpus"] for part in row["on"]] == [[0, 1, 2, 3]]
        assert row["suspended"]


def test_who_comes_back_is_told_what_he_missed_or_everything() -> None:
    with serving(STILL) as client, watching(client) as other:
        next(other)  # somebody else watches on
        with watching(client) as heard:
            _, last, _ = next(heard)
        job = submit(client, gpus=1)
        state_of(other, job, "running")

        with watching(client, last=last) as heard:
            kind, _, missed = next(heard)
        with watching(client, last="0-1") as heard:
            unknown, _, whole = next(heard)

        assert kind == "update"
        assert [row["id"] for row in missed["jobs"]] == [job]
        assert not missed["nodes"] or len(missed["nodes"]) < len(whole["nodes"])
        assert unknown == "snapshot"


def test_a_tenant_is_told_of_its_own_jobs_and_reasons_alone() -> None:
    with serving(STILL) as client:
        admin = token(client, "admin")
        mine = token(client, "user", "mine", by=admin)
        bodies = [
            (admin, {"id": "theirs", "gpus": 8, "kinds": ["a100"], "tenant": "theirs"}),
            (admin, {"id": "waits", "gpus": 7, "kinds": ["a100"], "tenant": "theirs"}),
            (mine, {"id": "ours", "gpus": 6, "kinds": ["a100"]}),
        ]
        for secret, body in bodies:
            answer = client.post(f"{API}/jobs", json=body, headers=bearer(secret))
            assert answer.status_code == 201

        with watching(client, mine) as heard:
            _, _, own = next(heard)
        with watching(client, admin) as heard:
            _, _, everything = next(heard)

        assert [row["name"] for row in own["jobs"]] == ["ours"] or len(own["jobs"]) == 1
        assert all("6 a100" in text for text in own["reasons"].values())
        assert any("7 a100" in text for text in everything["reasons"].values())
        assert sum(len(node["held_gpus"]) for node in own["nodes"]) == 8


def test_the_line_says_who_starts_when() -> None:
    with serving(STILL, policy="fifo") as client:
        submit(client, gpus=8, kinds=["a100"], hints={"duration_s": 600})
        soon = submit(client, gpus=8, kinds=["a100"], hints={"duration_s": 600})
        late = submit(client, gpus=8, kinds=["a100"], hints={"duration_s": 600})

        line = get(client, "/queue")

        places = {row["id"]: (row["place"], row["p50"]) for row in line["jobs"]}
        assert places[soon][0] == 1 and places[late][0] == 2
        assert 0.0 < places[soon][1] < places[late][1]


def test_the_page_is_served_with_a_policy_that_lets_nothing_inline_run() -> None:
    with serving(STILL) as client:
        index = client.get("/")
        script = client.get("/web/js/main.js")
        again = client.get("/web/js/main.js", headers={"If-None-Match": script.headers["etag"]})
        missing = client.get("/web/../auth.py")

        assert index.status_code == script.status_code == 200
        assert "script-src 'self';" in index.headers["content-security-policy"]
        assert "unsafe" not in index.headers["content-security-policy"]
        assert script.headers["content-type"].startswith("text/javascript")
        assert again.status_code == 304
        assert missing.status_code == 404


def test_a_session_is_a_cookie_that_scripts_cannot_read_and_other_sites_cannot_use() -> None:
    with serving(STILL) as client:
        admin = token(client, "admin")

        answer = client.post(f"{API}/sign-in", headers=bearer(admin))

        cookie = answer.headers["set-cookie"]
        assert admin not in cookie
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        page = {"x-weft-page": "1"}
        assert client.get(f"{API}/me", headers=page).json()["role"] == "admin"
        assert client.get(f"{API}/me").status_code == 401
        assert client.delete(f"{API}/sign-in", headers=page).status_code == 200
        assert client.get(f"{API}/me", headers=page).status_code == 401
