"""Limits of a running service: nothing that one tenant asks stops the others."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

import httpx

from tests.integration.serving import bearer, serving, token
from tests.waiting import LIMIT_S, wait_until
from weft.app.serve.rules import TenantLimits

API = "/api/v1"
JOB = {"gpus": 1, "hints": {"duration_s": 3600}}


def address(client: httpx.Client) -> tuple[str, int]:
    parts = urlsplit(str(client.base_url))
    return parts.hostname or "", parts.port or 0


def ended_by_server(client: httpx.Client, sent: bytes) -> bytes:
    """What a client hears that sends this and then nothing."""
    with socket.create_connection(address(client), timeout=LIMIT_S) as connection:
        connection.sendall(sent)
        heard = b""
        while chunk := connection.recv(65536):
            heard += chunk
        return heard


def test_a_tenant_that_asks_too_often_is_told_when_to_come_back_and_others_are_served() -> None:
    with serving(limits=TenantLimits(rate=0.01, burst=10.5)) as client:
        admin = token(client, "admin")
        ann, ben = (bearer(token(client, "user", name, admin)) for name in ("a", "b"))

        answers = [client.get(f"{API}/policy", headers=ann) for _ in range(13)]
        other = client.get(f"{API}/policy", headers=ben)
        boss = [client.get(f"{API}/policy", headers=bearer(admin)) for _ in range(20)]

    codes = [answer.status_code for answer in answers]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert codes[:10] == [200] * 10
    assert int(refused.headers["retry-after"]) >= 1
    assert "limit rate" in refused.json()["hint"]
    assert other.status_code == 200
    assert {response.status_code for response in boss} == {200}


def test_health_is_told_however_often_it_is_asked() -> None:
    with serving(limits=TenantLimits(rate=0.001, burst=1.0)) as client:
        token(client, "admin")

        codes = {client.get("/healthz").status_code for _ in range(20)}

    assert codes == {200}


def test_open_streams_are_limited_and_given_back_when_they_close() -> None:
    with serving(limits=TenantLimits(streams=2.0)) as client:
        admin = token(client, "admin")
        ann = bearer(token(client, "user", "a", admin))

        with (
            client.stream("GET", f"{API}/events", headers=ann),
            client.stream("GET", f"{API}/events", headers=ann),
        ):
            third = client.get(f"{API}/events", headers=ann)
        until, again = time.monotonic() + LIMIT_S, 429
        while again == 429 and time.monotonic() < until:
            with client.stream("GET", f"{API}/events", headers=ann) as opened:
                again = opened.status_code

    assert third.status_code == 429
    assert "2 open streams" in third.json()["error"]
    assert again == 200


def test_jobs_that_have_not_ended_are_limited_until_some_end() -> None:
    with serving(limits=TenantLimits(jobs=2.0)) as client:
        admin = token(client, "admin")
        ann = bearer(token(client, "user", "a", admin))

        first, second, third = (client.post(f"{API}/jobs", json=JOB, headers=ann) for _ in range(3))
        client.delete(f"{API}/jobs/{first.json()['id']}", headers=ann)
        fourth = client.post(f"{API}/jobs", json=JOB, headers=ann)

    codes = [response.status_code for response in (first, second, third, fourth)]
    assert codes == [201, 201, 429, 201]
    assert third.headers["retry-after"] == "60"
    assert "cancel some" in third.json()["hint"]


def test_a_job_of_more_gpus_than_allowed_is_refused_by_its_field() -> None:
    with serving(limits=TenantLimits(gpus=2.0)) as client:
        admin = token(client, "admin")
        ann = bearer(token(client, "user", "a", admin))

        answer = client.post(f"{API}/jobs", json={**JOB, "gpus": 4}, headers=ann)

    assert (answer.status_code, answer.json()["field"]) == (422, "gpus")


def test_a_connection_that_asks_for_nothing_is_closed() -> None:
    with serving(limits=TenantLimits(header_s=1.0)) as client:
        assert ended_by_server(client, b"") == b""
        assert ended_by_server(client, b"GET /healthz HTTP/1.1\r\nHost: ") == b""
        time.sleep(1.2)  # longer than a header may take: an idle connection is another matter
        assert client.get("/healthz").status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with serving(limits=TenantLimits(body_s=0.2)) as client:
        head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"

        heard = ended_by_server(client, head + b"\r\nContent-Length: 100\r\n\r\n{")

    assert b"408" in heard.splitlines()[0]
    assert b"did not arrive within 0.2 s" in heard


def test_connections_beyond_the_limit_are_let_go_and_the_others_served() -> None:
    with serving(limits=TenantLimits(connections=8.0)) as client:
        assert client.get("/healthz").status_code == 200
        idle = [socket.create_connection(address(client), timeout=LIMIT_S) for _ in range(30)]
        wait_until(lambda: sum(map(_is_closed, idle)) >= 22, "22 of them are let go")

        assert client.get("/healthz").status_code == 200

        for connection in idle:
            connection.close()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_many_streams_hear_everything_in_order() -> None:
    heard: dict[int, list[int]] = {}

    def listen(number: int, url: str) -> None:
        heard[number] = []
        with httpx.stream(
            "GET", f"{url}{API}/events?since=0", timeout=LIMIT_S, verify=False
        ) as stream:
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    heard[number].append(int(line[4:]))
                if line == "event: Cancelled":
                    return

    with serving() as client:
        url = str(client.base_url).rstrip("/")
        threads = [threading.Thread(target=listen, args=(i, url)) for i in range(20)]
        for thread in threads:
            thread.start()
        made = [client.post(f"{API}/jobs", json=JOB).json()["id"] for _ in range(20)]
        client.delete(f"{API}/jobs/{made[-1]}")
        for thread in threads:
            thread.join(LIMIT_S)

    assert len(heard) == 20
    for numbers in heard.values():
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 20
