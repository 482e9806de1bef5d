"""A service whose PostgreSQL is killed, cut off or hangs at any moment, and comes back."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.integration.serving import API, FAST, Running, get
from tests.postgres_server import PostgresServer, running_server
from tests.seeds import seeds
from tests.waiting import LIMIT_S, wait_until
from weft.app.serve.live import Settings

SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weft'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


class Submitter(threading.Thread):
    """Submits one job after the other until it is ended, and notes what was answered."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._client = httpx.Client(
            base_url=address, timeout=LIMIT_S, trust_env=False, verify=False
        )
        self.accepted, self.refusals, self._ended = list[str](), list[str](), threading.Event()

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            body = {"id": f"job-{number}", "gpus": 1, "hints": {"duration_s": 60}}
            answer = self._client.post(f"{API}/jobs", json=body)
            if answer.status_code == 201:
                self.accepted.append(body["id"])  # type: ignore[arg-type]
            else:
                self.refusals.append(answer.text)
            time.sleep(0.02)

    def wait_for_more(self) -> None:
        """The service goes on."""
        known = len(self.accepted)
        wait_until(lambda: len(self.accepted) > known, "no job is accepted any more")

    def end(self) -> None:
        self._ended.set()
        self.join(LIMIT_S)
        assert not self.is_alive()
        self._client.close()


def do_fault(server: PostgresServer, address: str, client: httpx.Client, rng: random.Random) -> str:
    """One drawn fault, and the server is back."""
    fault = rng.choice(("kill", "cut", "hang"))
    if fault == "kill":
        server.kill()
        time.sleep(rng.uniform(0.0, 0.5))
        server.begin()
    elif fault == "cut":
        with psycopg.connect(address, autocommit=True) as admin:
            admin.execute(SESSIONS)
    else:
        server.signal(signal.SIGSTOP)
        try:
            time.sleep(rng.uniform(0.0, 1.0))
            assert client.get("/health/live").status_code == 200
        finally:
            server.signal(signal.SIGCONT)
    return fault


def shown(client: httpx.Client) -> tuple[list[Any], Any]:
    """What the service says of every job, and of what tenants used."""
    jobs: list[Any] = []
    after: dict[str, str] | None = {}
    while after is not None:
        page = get(client, "/jobs", limit=500, **after)
        jobs += page["jobs"]
        after = {"after": page["next"]} if page["next"] else None
    return jobs, get(client, "/accounting")["tenants"]


def live_through(server: PostgresServer, folder: Path, seed: int, faults: int) -> Counter[str]:
    """A service under jobs and drawn faults; what was accepted is there, once and for good."""
    rng, database, met = random.Random(seed), server(), Counter[str]()
    settings = Settings(engine=FAST, state=folder, database=database, policy="fifo", port=0)
    service = Running(settings)
    address = service.begin()
    submitter = Submitter(address)
    submitter.start()
    with httpx.Client(base_url=address, timeout=60.0, trust_env=False, verify=False) as client:
        for _ in range(faults):
            time.sleep(rng.uniform(0.0, 0.3))
            met[do_fault(server, database, client, rng)] += 1
            submitter.wait_for_more()
        submitter.end()
        wait_until(lambda: {job["state"] for job in shown(client)[0]} == {"succeeded"})
        before = shown(client)
    service.end()
    check_log(database, submitter.accepted)
    assert all("PostgreSQL" in text for text in submitter.refusals), submitter.refusals
    service = Running(settings)
    with httpx.Client(
        base_url=service.begin(), timeout=60.0, trust_env=False, verify=False
    ) as client:
        assert shown(client) == before
    service.end()
    return met


def check_log(database: str, accepted: list[str]) -> None:
    """Every accepted job was submitted, started and finished once, and no event is missing."""
    with psycopg.connect(database) as log:
        rows = log.execute("SELECT seq, json FROM events ORDER BY seq").fetchall()
    assert [seq for seq, _ in rows] == [*range(1, len(rows) + 1)]
    events = [json.loads(line) for _, line in rows]
    submitted = Counter(event["job"]["id"] for event in events if event["event"] == "Submitted")
    assert set(accepted) <= set(submitted)
    for kind in ("Started", "Finished"):
        counts = Counter(event["job"] for event in events if event["event"] == kind)
        assert counts == submitted
    assert set(submitted.values()) == {1}


@pytest.mark.parametrize("seed", seeds(2))
def test_no_accepted_job_is_lost_or_runs_twice(
    server: PostgresServer, tmp_path: Path, seed: int
) -> None:
    live_through(server, tmp_path, seed, faults=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20))
def test_nor_in_many_more_faults(server: PostgresServer, tmp_path: Path, seed: int) -> None:
    met = live_through(server, tmp_path, seed, faults=30)

    assert set(met) == {"kill", "cut", "hang"}
