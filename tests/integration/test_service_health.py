"""Health that means it: what those who watch the service are told."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.serving import STILL, serving, token
from tests.waiting import LIMIT_S, wait_until
from weft.runtime.loop.leading import Leading
from weft.service.watchdog import notify_systemd, watchdog_s

API = "/api/v1"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket such as systemd's, named in the environment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def bad(client: httpx.Client) -> dict[str, str]:
    checks = client.get("/health/ready").json()["checks"]
    return {check["part"]: check["message"] for check in checks if not check["ok"]}


def test_systemd_hears_that_it_is_ready_that_it_lives_and_that_it_leaves(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    heard: list[str] = []

    with serving() as client:
        while "WATCHDOG=1" not in heard:
            heard.append(systemd.recv(4096).decode())
        assert client.get("/health/live").json() == {"alive": True}
    systemd.settimeout(0.5)
    try:
        while True:
            heard.append(systemd.recv(4096).decode())
    except TimeoutError:
        pass

    assert "READY=1" in [line for text in heard for line in text.splitlines()]
    assert "STOPPING=1" in heard
    assert "WATCHDOG=1" not in heard[heard.index("STOPPING=1") :]


def test_a_service_that_is_well_is_ready_without_a_token() -> None:
    with serving() as client:
        token(client, "admin")

        answer = client.get("/health/ready")

    assert answer.status_code == 200
    assert {check["part"] for check in answer.json()["checks"]} == {
        "loop",
        "engine",
        "log",
        "lease",
        "decisions",
    }


def test_a_service_whose_lease_another_may_have_taken_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as client:
        assert client.get("/health/ready").status_code == 200
        monkeypatch.setattr(Leading, "unrenewed_s", 6.0)

        assert client.get("/health/ready").status_code == 503
        assert bad(client) == {"lease": "not renewed for 6 s"}


def test_a_log_that_cannot_be_written_makes_it_unready_and_it_comes_back(tmp_path: Path) -> None:
    with serving(STILL, tmp_path) as client:
        other = sqlite3.connect(tmp_path / "events.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        refused = client.post(f"{API}/jobs", json={"gpus": 1})
        unready, failing = client.get("/health/ready").status_code, bad(client)
        other.execute("ROLLBACK")
        other.close()
        back = wait_until(lambda: client.post(f"{API}/jobs", json={"gpus": 1}).status_code == 201)

        assert refused.status_code == 503
        assert unready == 503
        assert "cannot write its log" in failing["decisions"]
        assert back
        assert wait_until(lambda: client.get("/health/ready").status_code == 200)


def test_metrics_tell_of_every_part() -> None:
    with serving() as client:
        client.post(f"{API}/jobs", json={"gpus": 1})
        lines = client.get("/metrics").text.splitlines()

    series = {line.partition(" ")[0] for line in lines if not line.startswith("#")}
    assert {f'weft_healthy{{part="{part}"}}' for part in ("loop", "engine", "log")} <= series
    assert {
        "weft_append_seconds_last",
        "weft_decision_seconds_longest",
        "weft_loop_late_seconds",
    } <= series
    assert "weft_appends_timed_total 0" not in lines


def test_nobody_listening_is_no_error(tmp_path: Path) -> None:
    notify_systemd({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, "READY=1")
    notify_systemd({}, "READY=1")


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, float("inf")),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, float("inf")),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "x"}, float("inf")),
    ],
)
def test_how_often_systemd_wants_to_hear(environment: dict[str, str], seconds: float) -> None:
    assert watchdog_s(environment) == seconds
