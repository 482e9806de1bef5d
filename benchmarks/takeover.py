"""Two services on one log, and a leader that is killed, stopped, cut off, or told to end.

    python -m benchmarks.takeover --rounds 200 --seed 1
    python -m benchmarks.takeover --rounds 200 --database postgresql://...   # an empty one
    python -m benchmarks.takeover --rounds 200 --database postgresql://... --machines

Clocks are moved besides. A leader that is cut off runs on and cannot renew its lease: with a file
the renewals fail, with a database nothing that either side sends arrives. With --machines no
service can end another, as if each ran on a machine of its own: a leader that was stopped or cut
off is let go on after the next one leads, and must end by itself.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

LIMIT_S = 300.0
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}
FAULTS = ("stop", "kill", "end", "clock", "pause", "cut")
SERVE = """
import sqlite3, sys, time
from pathlib import Path
clock, real, machine = Path(sys.argv.pop(1)), time.time, sys.argv.pop(1)
def shifted():
    try:
        return real() + float(clock.read_text() or 0.0)
    except FileNotFoundError:
        return real()
time.time = shifted
from weft.app.serve import standby
from weft.store import lease
cut, beat = clock.with_name(clock.name + ".cut"), lease.renew_lease
def beat_unless_cut(*given):
    if cut.exists():
        raise sqlite3.OperationalError("cut off")
    beat(*given)
lease.renew_lease = beat_unless_cut
if machine:
    standby._pid_space = lambda: machine
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


class Wire:
    """A port of this machine that leads to a PostgreSQL server, until it is cut.

    While it is cut nothing arrives on either side and nothing is closed; once it is mended all that
    was sent meanwhile arrives.
    """

    def __init__(self, database: str) -> None:
        from psycopg.conninfo import conninfo_to_dict

        server = conninfo_to_dict(database)
        host, port = str(server.get("host") or "127.0.0.1"), int(server.get("port") or 5432)
        self._server = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
        self._whole = threading.Event()
        self._whole.set()
        self._door = socket.create_server(("127.0.0.1", 0))
        ours = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.address = f"postgresql://{server.get('user', '')}@{ours}/{server['dbname']}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything through again."""
        self._whole.set()

    def close(self) -> None:
        """Take no more connections."""
        self.mend()
        self._door.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._door.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._whole.wait()
        kind = socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET
        far = socket.socket(kind)
        try:
            far.connect(self._server)
        except OSError:
            near.close()
            return
        back = threading.Thread(target=self._pass_on, args=(far, near), daemon=True)
        back.start()
        self._pass_on(near, far)
        back.join()
        near.close()
        far.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._whole.wait()
                sink.sendall(data)
        self._whole.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@dataclass
class Service:
    """A process, the file of its clock beside that of its output, and where it listens."""

    process: subprocess.Popen[bytes]
    clock: Path
    address: str
    wire: Wire | None

    def read_log(self) -> str:
        """What it printed."""
        return self.clock.with_name(self.clock.name.replace("clock", "log")).read_text()

    def cut(self) -> None:
        """Let it renew its lease no more."""
        self._cut_file.touch()
        if self.wire is not None:
            self.wire.cut()

    def mend(self) -> None:
        """Let it try again."""
        self._cut_file.unlink()
        if self.wire is not None:
            self.wire.mend()

    @property
    def _cut_file(self) -> Path:
        return self.clock.with_name(self.clock.name + ".cut")

    def accepts(self, job: Mapping[str, object]) -> bool:
        """Whether it takes a job within some seconds."""
        try:
            answer = httpx.post(f"{self.address}/jobs", json=job, timeout=3.0, trust_env=False)
        except httpx.HTTPError:
            return False
        return answer.status_code in (200, 201)

    def is_ready(self) -> bool:
        """Whether it says so within some seconds; one that is cut off may not answer at all."""
        at = self.address.replace("/api/v1", "/health/ready")
        try:
            return httpx.get(at, timeout=3.0, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


class Cluster:
    """Two services with one state folder, and a database for the log if named.

    They have one address, or with `machines` one each, and none can end another.
    """

    def __init__(
        self, folder: Path, seed: int, database: str = "", *, machines: bool = False
    ) -> None:
        self.database, self.machines = database, machines
        self.folder, self.draw = folder, random.Random(seed)
        self.state, self.notes = folder / "state", folder / "notes"
        self.notes.mkdir(parents=True)
        self.port = find_port()
        self._made = 0
        self.services: list[Service] = []
        self.client = httpx.Client(timeout=LIMIT_S, trust_env=False)

    def add(self) -> None:
        """Start one more service."""
        self._made += 1
        clock, log = self.folder / f"clock-{self._made}", self.folder / f"log-{self._made}"
        machine = f"machine {self._made}" if self.machines else ""
        host = f"127.0.0.{self._made % 200 + 2}" if self.machines else "127.0.0.1"
        wire = Wire(self.database) if self.database else None
        command = [sys.executable, "-c", SERVE, str(clock), machine, "serve", "--standby", "-v"]
        command += ["--state", str(self.state), "--host", host, "--port", str(self.port)]
        command += ["--engine", "local:cpu=true,warm=false", "--policy", "fifo", "--slots", "4"]
        command += ["--database", wire.address] if wire is not None else []
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=UNBUFFERED)
        address = f"http://{host}:{self.port}/api/v1"
        self.services.append(Service(process, clock, address, wire))

    def leader(self) -> Service:
        """Whoever has the lease and answers."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if (service := self.find_leader()) is not None:
                return service
            time.sleep(0.05)
        raise TimeoutError(f"nobody leads after {LIMIT_S:g} s")

    def find_leader(self) -> Service | None:
        """Whoever has the lease and answers now."""
        for gone in [service for service in self.services if service.process.poll() is not None]:
            self.services.remove(gone)
            if gone.wire is not None:
                gone.wire.close()
        assert self.services, f"every service has ended; see {self.folder}"
        for service in self.services:
            if is_leader(self.state, self.database, service.process.pid) and self.answers(service):
                return service
        return None

    def wait_for_standby(self) -> None:
        """Until every other service stands by."""
        end = time.monotonic() + LIMIT_S
        while not all("standing by" in service.read_log() for service in self.services):
            if time.monotonic() > end:
                raise TimeoutError(f"no standby after {LIMIT_S:g} s")
            time.sleep(0.05)

    def job(self, name: str) -> dict[str, object]:
        """One that notes its start and its end in the file `name`."""
        command = ["bash", "-c", JOB, str(self.notes / name)]
        return {"id": name, "gpus": 1, "command": command, "retries": 0}

    def answers(self, service: Service) -> bool:
        """Whether a service can be reached."""
        try:
            return self.client.get(f"{service.address}/nodes", timeout=1.0).status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """End every service."""
        self.client.close()
        for service in self.services:
            service.process.send_signal(signal.SIGCONT)
            service.process.terminate()
        for service in self.services:
            service.process.wait(LIMIT_S)


class Submitter(threading.Thread):
    """Submits a job again and again until it is accepted, then the next."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.accepted: list[str] = []
        self.over = threading.Event()
        self._cluster = cluster

    def run(self) -> None:
        """Until told to end."""
        turn = 0
        with httpx.Client(timeout=5.0, trust_env=False) as client:
            while not self.over.wait(0.5):
                services, turn = [*self._cluster.services], turn + 1
                if not services:
                    continue
                name = f"j{len(self.accepted)}"
                at = services[turn % len(services)].address  # as from a person who does not know
                try:
                    answer = client.post(f"{at}/jobs", json=self._cluster.job(name))
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
    leader = cluster.leader()
    cluster.wait_for_standby()
    time.sleep(cluster.draw.uniform(0.0, 1.0))
    began = time.monotonic()
    if fault == "clock":
        shift_s = cluster.draw.choice((-1.0, 1.0)) * cluster.draw.uniform(60, 86_400)
        leader.clock.write_text(str(shift_s))
        time.sleep(1.0)
        return 0.0
    if fault == "pause":  # shorter than anybody takes notice of
        leader.process.send_signal(signal.SIGSTOP)
        time.sleep(cluster.draw.uniform(0.2, 2.0))
        leader.process.send_signal(signal.SIGCONT)
        cluster.leader()
        return 0.0
    if fault == "cut":
        leader.cut()
    else:
        leader.process.send_signal(
            {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "end": signal.SIGTERM}[fault]
        )
    end = began + LIMIT_S
    while (next_one := cluster.find_leader()) is None or next_one is leader:
        if time.monotonic() > end:
            raise TimeoutError(f"nobody took over within {LIMIT_S:g} s of {fault}")
        time.sleep(0.05)
    took = time.monotonic() - began
    if cluster.machines and fault in ("cut", "stop"):
        outlive(cluster, leader, fault)
    assert leader.process.wait(LIMIT_S) is not None
    cluster.add()
    return took


def outlive(cluster: Cluster, leader: Service, fault: str) -> None:
    """Let a leader of before, which nobody could end, go on: it accepts nothing, and ends."""
    time.sleep(cluster.draw.uniform(0.0, 3.0))
    if fault == "cut":
        name = f"refused-{leader.process.pid}"
        assert not leader.accepts(cluster.job(name)), f"two services take jobs: {leader.address}"
        assert not leader.is_ready(), f"it says that it is ready: {leader.address}"
        leader.mend()
    else:
        leader.process.send_signal(signal.SIGCONT)


def rounds(
    folder: Path,
    count: int,
    seed: int,
    database: str = "",
    *,
    machines: bool = False,
    faults: Sequence[str] = FAULTS,
) -> dict[str, list[float]]:
    """Takeover times by fault; AssertionError if a job was lost or ran twice."""
    cluster = Cluster(folder, seed, database, machines=machines)
    took: dict[str, list[float]] = {}
    submitter = Submitter(cluster)
    try:
        cluster.add()
        cluster.leader()
        cluster.add()
        submitter.start()
        for number in range(count):
            fault = faults[number % len(faults)]
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
    at = f"{cluster.leader().address}/jobs"
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        states = Counter(cluster.client.get(f"{at}/{name}").json()["state"] for name in accepted)
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
    ask.add_argument("--machines", action="store_true")
    asked = ask.parse_args()
    os.nice(5)
    folder = Path(tempfile.mkdtemp(prefix="weft-takeover-"))  # kept where something went wrong
    took = rounds(folder, asked.rounds, asked.seed, asked.database, machines=asked.machines)
    shutil.rmtree(folder)
    for fault in ("kill", "end", "stop", "cut"):
        if times := took.get(fault):
            print(f"{fault}: median {statistics.median(times):.1f} s, most {max(times):.1f} s")
    print(f"{asked.rounds} rounds: nothing lost, nothing twice")


if __name__ == "__main__":
    main()
