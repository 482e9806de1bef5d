"""What other tenants wait for `submit` and `explain` beside one that has many what-ifs open.

    python -m benchmarks.beside_what_ifs [--waiting 2000] [--open 30] [--asked 20]

Starts a service as people do, with tokens and so many waiting jobs. One tenant opens streams of
what-ifs about the present, again whenever one ends; another submits and asks why a job waits, one
request after the other. Rounds with and without what-ifs take turns, so that a busy machine
slows both. Prints the medians and what part they are of those without.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.explain_speed import BATCH, job
from benchmarks.service_load import SERVE

ENGINE = "simulated:cluster=8x8:a100+4x8:h200,speed=0.001"
LIMIT = 2.0
API = "/api/v1"


class Opener(threading.Thread):
    """Keeps one stream of a what-if open until it is told to end."""

    def __init__(self, address: str, headers: dict[str, str], number: int) -> None:
        super().__init__(daemon=True)
        self._address, self._headers = address, headers
        self._body = {"start": "now", "nodes": f"{1 + number % 8}x8:a100"}
        self.lines, self.over = 0, threading.Event()

    def run(self) -> None:
        """Read what comes, as a page does."""
        with httpx.Client(base_url=self._address, timeout=None, trust_env=False) as client:
            while not self.over.is_set():
                with (
                    suppress(httpx.HTTPError),
                    client.stream(
                        "POST", f"{API}/what-if/stream", json=self._body, headers=self._headers
                    ) as answer,
                ):
                    for _ in answer.iter_lines():
                        self.lines += 1
                        if self.over.is_set():
                            break
                self.over.wait(0.2)


def make_token(client: httpx.Client, admin: str, **fields: Any) -> str:
    """A new token."""
    headers = {"Authorization": f"Bearer {admin}"} if admin else {}
    answer = client.post(f"{API}/tokens", json=fields, headers=headers).raise_for_status()
    return str(answer.json()["token"])


def bearer(token: str) -> dict[str, str]:
    """Its header."""
    return {"Authorization": f"Bearer {token}"}


def ask(
    client: httpx.Client, headers: dict[str, str], jobs: list[str], count: int
) -> dict[str, list[float]]:
    """Seconds of submits and explanations, in turn."""
    took: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(count):
        waiting = jobs[(37 * number) % len(jobs)]
        for what, method, path, body in (
            ("submit", "POST", "/jobs", job(number)),
            ("explain", "GET", f"/jobs/{waiting}/explain", None),
        ):
            began = time.monotonic()
            client.request(method, API + path, json=body, headers=headers).raise_for_status()
            took[what].append(time.monotonic() - began)
            time.sleep(0.15)  # within the tenant's rate
    return took


def measure(address: str, waiting: int, streams: int, asked: int, rounds: int) -> dict[str, float]:
    """How many times as long each takes beside open what-ifs."""
    alone: defaultdict[str, list[float]] = defaultdict(list)
    beside: defaultdict[str, list[float]] = defaultdict(list)
    with httpx.Client(base_url=address, timeout=600.0, trust_env=False) as client:
        admin = make_token(client, "", role="admin")
        heavy = bearer(make_token(client, admin, role="user", tenant="heavy"))
        other = bearer(make_token(client, admin, role="user", tenant="other"))
        jobs: list[str] = []
        while len(jobs) < waiting:
            body = {"jobs": [{**job(number), "tenant": "other"} for number in range(BATCH)]}
            made = client.post(f"{API}/jobs/batch", json=body, headers=bearer(admin))
            jobs += made.raise_for_status().json()["jobs"]
        later = jobs[len(jobs) // 2 :]  # they wait
        ask(client, other, later, 2)  # the process that answers is started
        for _ in range(rounds):
            for what, took in ask(client, other, later, asked).items():
                alone[what] += took
            openers = [Opener(address, heavy, number) for number in range(streams)]
            for opener in openers:
                opener.start()
            while sum(opener.lines > 0 for opener in openers) < 1:
                time.sleep(0.1)
            for what, took in ask(client, other, later, asked).items():
                beside[what] += took
            for opener in openers:
                opener.over.set()
    ratios = {}
    for what in alone:
        first, then = statistics.median(alone[what]), statistics.median(beside[what])
        most = statistics.quantiles(beside[what], n=20)[-1]
        ratios[what] = then / first
        print(
            f"  {what:8} {1e3 * first:8.0f} ms alone {1e3 * then:8.0f} ms beside {streams} what-ifs"
            f"  {ratios[what]:5.2f} times, {1e3 * most:.0f} ms at p95"
        )
    return ratios


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=2000)
    parser.add_argument("--open", type=int, default=30)
    parser.add_argument("--asked", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="weft")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [sys.executable, "-c", SERVE, ENGINE, folder, asked.policy]
        log = stack.enter_context((Path(folder) / "log").open("w"))
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            print(f"{asked.waiting} waiting, policy {asked.policy}, load {os.getloadavg()[0]:.1f}")
            ratios = measure(address, asked.waiting, asked.open, asked.asked, asked.rounds)
        finally:
            server.terminate()
            server.wait(60)
    return 0 if max(ratios.values()) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
