"""A request is refused for what it weighs before any of it is parsed."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from tests.integration.serving import API, bearer, serving, token
from tests.waiting import LIMIT_S
from weft.service.access.page_sessions import COOKIE, PageSessions
from weft.service.access.tokens import TokenFile
from weft.service.budget.intake import JsonCount, TooMuch

JOB = {"gpus": 1, "hints": {"duration_s": 3600}}
HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving() as serving_client:
        yield serving_client


@pytest.fixture(scope="module")
def closed() -> Iterator[tuple[httpx.Client, str]]:
    """A service with tokens, and an admin's."""
    with serving() as serving_client:
        yield serving_client, token(serving_client, "admin")


def connect(client: httpx.Client) -> socket.socket:
    parts = urlsplit(str(client.base_url))
    return socket.create_connection((parts.hostname or "", parts.port or 0), LIMIT_S)


# ---- headers


@pytest.mark.parametrize(
    "cookie", ['a="' + "\\" * 60_000 + '"', "a=b; " * 12_000 + "c=d", "x" * 60_000]
)
def test_a_long_cookie_of_a_stranger_is_refused_unread(
    closed: tuple[httpx.Client, str], cookie: str
) -> None:
    headers = {"Cookie": cookie, "X-Weft-Page": "1"}

    answer = closed[0].get(f"{API}/jobs", headers=headers)

    assert answer.status_code == 431
    assert "16 KiB" in answer.json()["error"]


def test_a_long_address_is_refused_too(client: httpx.Client) -> None:
    assert client.get(f"{API}/jobs?after={'a' * 20_000}").status_code == 431


def test_a_header_without_end_is_cut_off(client: httpx.Client) -> None:
    with connect(client) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nCookie: ")
        sent = 0
        with pytest.raises(OSError):
            while sent < 64 << 20:
                sent += connection.send(b"x" * 65_536)


def test_the_next_header_of_a_connection_is_cut_off_too(client: httpx.Client) -> None:
    """While the first request is still answered, as a stream is."""
    with connect(client) as connection:
        connection.sendall(b"GET /api/v1/watch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(1)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nCookie: ")
        sent = 0
        with pytest.raises(OSError):
            while sent < 64 << 20:
                sent += connection.send(b"x" * 65_536)


def test_a_hostile_cookie_costs_what_a_harmless_one_costs() -> None:
    """Backslashes in quotes took time by their square."""
    sessions = PageSessions(None, TokenFile(None))

    def spend(value: str) -> float:
        headers = Headers({"cookie": f"{COOKIE}={value}", "x-weft-page": "1"})
        began = time.process_time()
        for _ in range(50):
            assert sessions.caller_of(headers) is None
        return time.process_time() - began

    plain = spend("x" * 16_000)

    assert spend('"' + "\\" * 16_000 + '"') < 30 * plain + 0.1


# ---- bodies


@pytest.mark.parametrize(
    "body", [b"[" * 20_000, b'{"a":' * 20_000, b"[" + b"1," * 500_000, b"[" + b'"",' * 200_000]
)
def test_json_that_is_deep_or_holds_much_is_refused_unparsed(
    client: httpx.Client, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []

    def parse(text: bytes, **_: object) -> dict[str, object]:
        parsed.append(len(text))
        return {}

    monkeypatch.setattr(json, "loads", parse)

    answer = client.post(f"{API}/jobs", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 413
    assert not parsed


def test_a_long_script_full_of_brackets_is_no_nesting(client: httpx.Client) -> None:
    answer = client.post(f"{API}/plan", json={"run": '[[ -f "x" ]], \\"{{' * 5_000})

    assert answer.status_code == 200, answer.text


def test_a_stranger_sends_little_whoever_he_says_he_is(closed: tuple[httpx.Client, str]) -> None:
    body = {"run": "x" * 20_000}

    stranger = closed[0].post(f"{API}/jobs", json=body, headers=bearer("weft_nobody"))
    known = closed[0].post(f"{API}/plan", json=body, headers=bearer(closed[1]))

    assert stranger.status_code == 413
    assert known.status_code == 200


def test_300_unfinished_bodies_do_not_lock_their_tenant_out(
    closed: tuple[httpx.Client, str],
) -> None:
    client, admin = closed
    mine = token(client, "user", "ann", admin)
    head = HEAD + f"Authorization: Bearer {mine}\r\nContent-Length: 100\r\n\r\n{{".encode()
    with ExitStack() as held:
        for _ in range(300):
            held.enter_context(connect(client)).sendall(head)
        time.sleep(1.0)  # they are refused late once there are more than the tenant's burst
        answer = client.post(f"{API}/jobs", json=JOB, headers=bearer(mine), timeout=25.0)
        while answer.status_code == 429:  # the rate's word, not the bodies'
            time.sleep(float(answer.headers["retry-after"]))
            answer = client.post(f"{API}/jobs", json=JOB, headers=bearer(mine), timeout=25.0)

        assert answer.status_code == 201


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(values, st.lists(st.integers(0, 200)), st.booleans())
def test_counting_agrees_with_parsing_wherever_the_parts_are_cut(
    value: object, cuts: list[int], ascii_only: bool
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    depth = depth_of(value)

    def feed(nesting: int) -> JsonCount:
        count = JsonCount(nesting, 0)
        marks = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
        for start, end in itertools.pairwise(marks):
            count.feed(body[start:end])
        return count

    assert feed(max(depth, 1)).depth == 0
    if depth > 1:
        with pytest.raises(TooMuch, match="nested"):
            feed(depth - 1)


# ---- what a short text grows into


@pytest.mark.parametrize(
    "nodes", ["100000x8:a100", "1000000x1:a100", "+".join(["999x60:a100"] * 9)]
)
@pytest.mark.parametrize("path", ["/what-if", "/what-if/stream", "/plan/what-if"])
def test_more_machines_than_there_could_be_are_counted_and_not_made(
    client: httpx.Client, path: str, nodes: str
) -> None:
    change = {"nodes": nodes}
    body = {"job": JOB, "change": change} if "plan" in path else {**change, "start": "now"}

    answer = client.post(API + path, json=body)

    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("path", ["/jobs", "/plan"])
def test_a_sweep_that_would_fill_the_memory_is_counted_and_not_made(
    client: httpx.Client, path: str
) -> None:
    grid = {"x": ["y" * 100_000], "n": [*range(1000)]}
    body = {"run": "${x}" * 32_000, "sweep": {"grid": grid}}

    answer = client.post(API + path, json=body)

    assert (answer.status_code, answer.json()["field"]) == (422, "sweep")
    assert "MB together" in answer.json()["error"]


def test_wrong_values_of_a_sweep_are_told_once_not_once_each(client: httpx.Client) -> None:
    answer = client.post(f"{API}/jobs", json={"sweep": {"grid": {"x": [None] * 90_000}}})

    assert answer.status_code == 422


@pytest.mark.parametrize("text", ["[" * 2_000, "[" * 20_000, "{a: " * 5_000, "[" + "1," * 100_000])
def test_a_job_file_that_is_deep_or_holds_much_is_refused_by_what_it_is(
    client: httpx.Client, text: str
) -> None:
    answer = client.post(f"{API}/job-file", json={"text": text})

    assert answer.status_code == 422, answer.text
    assert "nested" in answer.json()["error"] or "holds more than" in answer.json()["error"]


# ---- names that we make of names that people choose


def test_a_tenants_sweep_may_have_an_id_and_a_long_name(closed: tuple[httpx.Client, str]) -> None:
    client, admin = closed
    mine = bearer(token(client, "user", "bob", admin))
    body = {**JOB, "id": "a" * 60, "name": "n" * 128, "sweep": {"grid": {"x": [1, 2]}}}

    answer = client.post(f"{API}/jobs", json=body, headers=mine)
    longer = client.post(f"{API}/jobs", json={**body, "id": "b" * 61}, headers=mine)
    unsafe = {**JOB, "workdir": "/x/${x}", "sweep": {"grid": {"x": [".."]}}}
    outside = client.post(f"{API}/jobs", json=unsafe, headers=mine)

    assert answer.status_code == 201, answer.text
    assert answer.json()["id"] == f"bob:{'a' * 60}"
    second = client.get(f"{API}/jobs/{answer.json()['jobs'][1]}", headers=mine).json()
    assert second["name"] == "n" * 126 + ".1"
    assert second["app"] == answer.json()["id"]
    assert (longer.status_code, outside.status_code) == (422, 422)


# ---- what a request costs the loop


def test_jobs_that_wait_for_too_many_are_refused_with_their_number(client: httpx.Client) -> None:
    grid = {"grid": {"x": list(range(1000))}}
    sweep = client.post(f"{API}/jobs", json={**JOB, "command": ["true"], "sweep": grid}).json()
    afters = [{"ok": [sweep["id"]], "any": [name]} for name in sweep["jobs"][:101]]
    jobs = [{**JOB, "command": ["true"], "after": after} for after in afters]

    refused = client.post(f"{API}/jobs/batch", json={"jobs": jobs})
    taken = client.post(f"{API}/jobs/batch", json={"jobs": jobs[:2]})

    assert refused.status_code == 422
    assert "more than 100,000 together" in refused.json()["error"]
    assert taken.status_code == 201


def test_long_turns_are_counted_by_route_and_tenant(
    closed: tuple[httpx.Client, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, admin = closed
    monkeypatch.setattr("weft.service.budget.turns.LONG_S", 0.0)
    client.get(f"{API}/jobs", headers=bearer(admin))

    shown = client.get("/metrics", headers=bearer(admin)).text

    assert 'weft_long_turns_total{route="GET /api/v1/jobs",tenant="*"} ' in shown
    assert "weft_loop_turn_seconds_longest" in shown
