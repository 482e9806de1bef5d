"""Two services on one log, and a leader that is killed, stopped, told to end, or loses its clock.

    python -m benchmarks.takeover --rounds 200 --seed 1
    python -m benchmarks.takeover --rounds 200 --database postgresql://...   # an empty one

Jobs are submitted all the while, real processes that note each start and each end. At the end
every accepted job must have run exactly once, and never beside itself. Printed: seconds from each
fault to the first answer of the next leader.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

LIMIT_S = 300.0
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}
FAULTS = ("stop", "kill", "end", "clock", "pause")
SERVE = """
import sys, time
from pathlib import Path
clock, real = Path(sys.argv.pop(1)), time.time
def shifted():
    try:
        return real() + float(clock.read_text() or 0.0)
    except FileNotFoundError:
        return real()
time.time = shifted
from weft.cli.main import main
main()
"""
# A job notes that it began, holds a lock that a second one could not have, and notes its end.
JOB = """
set -e
exec 9>>"$0.lock"
flock -n 9 || { echo twice >>"$0"; exit 0; }
echo began >>"$0"; sleep 0.4; echo ended >>"$0"
"""


class Cluster:
    """Two services with one state folder and one address, and a database for the log if named."""

    def __init__(self, folder: Path, seed: int, database: str = "") -> None:
        self.database = database
        self.folder, self.draw = folder, random.Random(seed)
        self.state, self.notes = folder / "state", folder / "notes"
        self.notes.mkdir(parents=True)
        self.port = find_port()
        self._made = 0
        self.services: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/v1", timeout=LIMIT_S, trust_env=False
        )

    def add(self) -> None:
        """Start one more service."""
        self._made += 1
        clock, log = self.folder / f"clock-{self._made}", self.folder / f"log-{self._made}"
        command = [sys.executable, "-c", SERVE, str(clock), "serve", "--standby", "-v"]
        command += ["--state", str(self.state), "--port", str(self.port), "--slots", "4"]
        command += ["--engine", "local:cpu=true,warm=false", "--policy", "fifo"]
        command += ["--database", self.database] if self.database else []
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=UNBUFFERED)
        self.services.append((process, clock))

    def leader(self) -> tuple[subprocess.Popen[bytes], Path]:
        """Whoever answers, found by the process that listens."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            self.services = [service for service in self.services if service[0].poll() is None]
            for service in self.services:
                if self.answers() and is_leader(self.state, self.database, service[0].pid):
                    return service
            time.sleep(0.05)
        raise TimeoutError(f"nobody leads after {LIMIT_S:g} s")

    def wait_for_standby(self) -> None:
        """Until every other service stands by."""
        end = time.monotonic() + LIMIT_S
        while not all("standing by" in read_log(clock) for _, clock in self.services):
            if time.monotonic() > end:
                raise TimeoutError(f"no standby after {LIMIT_S:g} s")
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether a service can be reached."""
        try:
            return self.client.get("/nodes").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """End every service."""
        self.client.close()
        for process, _ in self.services:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process, _ in self.services:
            process.wait(LIMIT_S)


class Submitter(threading.Thread):
    """Submits a job again and again until it is accepted, then the next."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.accepted: list[str] = []
        self.over = threading.Event()
        self._cluster = cluster

    def run(self) -> None:
        """Until told to end."""
        at = f"http://127.0.0.1:{self._cluster.port}/api/v1"
        with httpx.Client(base_url=at, timeout=5.0, trust_env=False) as client:
            while not self.over.wait(0.5):
                name = f"j{len(self.accepted)}"
                command = ["bash", "-c", JOB, str(self._cluster.notes / name)]
                job = {"id": name, "gpus": 1, "command": command, "retries": 0}
                try:
                    answer = client.post("/jobs", json=job)
                except httpx.HTTPError:
                    continue
                if answer.status_code in (200, 201, 409):
                    self.accepted.append(name)


def find_port() -> int:
    """One that nobody listens on, nor is given while no service has it."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)  # below those of connections
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def read_log(clock: Path) -> str:
    """What the service with this clock printed."""
    return clock.with_name(clock.name.replace("clock", "log")).read_text()


def is_leader(state: Path, database: str, pid: int) -> bool:
    """Whether the lease is a process's."""
    from weft.app.serve.standby import open_place
    from weft.core.errors import StoreError

    try:
        with contextlib.closing(open_place(state, database)) as place:
            holder = place.read().holder
    except (sqlite3.Error, StoreError):  # just being made, or brought back
        return False
    return bool(holder) and json.loads(holder)["pid"] == pid


def strike(cluster: Cluster, fault: str) -> float:
    """Do something to the leader; seconds until the next one answers, or it does again."""
    leader, clock = cluster.leader()
    cluster.wait_for_standby()
    time.sleep(cluster.draw.uniform(0.0, 1.0))
    began = time.monotonic()
    if fault == "clock":
        clock.write_text(str(cluster.draw.choice((-1.0, 1.0)) * cluster.draw.uniform(60, 86_400)))
        time.sleep(1.0)
        return 0.0
    if fault == "pause":  # shorter than anybody takes notice of
        leader.send_signal(signal.SIGSTOP)
        time.sleep(cluster.draw.uniform(0.2, 2.0))
        leader.send_signal(signal.SIGCONT)
        cluster.leader()
        return 0.0
    leader.send_signal(
        {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "end": signal.SIGTERM}[fault]
    )
    end = began + LIMIT_S
    while leader.poll() is None or not cluster.answers():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody took over within {LIMIT_S:g} s of {fault}")
        time.sleep(0.05)
    took = time.monotonic() - began
    cluster.add()
    return took


def rounds(folder: Path, count: int, seed: int, database: str = "") -> dict[str, list[float]]:
    """Takeover times by fault; AssertionError if a job was lost or ran twice."""
    cluster = Cluster(folder, seed, database)
    took: dict[str, list[float]] = {}
    submitter = Submitter(cluster)
    try:
        cluster.add()
        cluster.leader()
        cluster.add()
        submitter.start()
        for number in range(count):
            fault = FAULTS[number % len(FAULTS)]
            seconds = strike(cluster, fault)
            took.setdefault(fault, []).append(seconds)
            print(f"{number} {fault} {seconds:.1f} s, {len(submitter.accepted)} jobs", flush=True)
        submitter.over.set()
        submitter.join(LIMIT_S)
        check(cluster, submitter.accepted)
    finally:
        submitter.over.set()
        cluster.close()
    return took


def check(cluster: Cluster, accepted: list[str]) -> None:
    """Every accepted job ended well, and ran once."""
    assert accepted, "no job was accepted"
    cluster.leader()
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        states = Counter(cluster.client.get(f"/jobs/{name}").json()["state"] for name in accepted)
        if set(states) <= {"succeeded", "failed", "cancelled"}:
            break
        time.sleep(0.5)
    assert states == {"succeeded": len(accepted)}, states
    for name in accepted:
        noted = (cluster.notes / name).read_text().split()
        assert noted == ["began", "ended"], (name, noted)


def main() -> None:
    """Print a line per round, and the times of all takeovers."""
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    ask.add_argument("--rounds", type=int, default=20)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--database", default="")
    asked = ask.parse_args()
    os.nice(5)
    folder = Path(tempfile.mkdtemp(prefix="weft-takeover-"))  # kept where something went wrong
    took = rounds(folder, asked.rounds, asked.seed, asked.database)
    shutil.rmtree(folder)
    for fault in ("kill", "end", "stop"):
        if times := took.get(fault):
            print(f"{fault}: median {statistics.median(times):.1f} s, most {max(times):.1f} s")
    print(f"{asked.rounds} rounds: nothing lost, nothing twice")


if __name__ == "__main__":
    main()
