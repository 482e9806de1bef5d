"""The service with a long past: 100,000 ended jobs, ten clients that poll, one tenant that floods.

    python -m benchmarks.service_load --ended 100000

Every figure stands beside the same one of a service without a past, measured in the same run, as
wall time depends on what else the machine does. The past is written to a log as a service would
have written it, a month of it; the service is then started on it, stopped and started again.
"""

from __future__ import annotations

import http.client
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.core.events.event import Decided, Event, Finished, NodeUp, Started, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.store.sqlite import SqliteStore

MAKE = multiprocessing.get_context("spawn")
MONTH_S = 30 * 86_400.0
POLLERS, POLL_S = 10, 0.5
TENANTS = ("t0", "t1", "t2", "t3")
FLOOD = 32  # connections that ask as fast as they are answered
SERVE = """
import sys
from pathlib import Path
from weft.app.serve.live import Settings
from weft.service.main import serve
settings = Settings(engine=sys.argv[1], state=Path(sys.argv[2]), port=0, policy=sys.argv[3])
serve(settings, ready=lambda address: print(address, flush=True))
"""
ENGINE = "simulated:cluster=63x8:a100,speed=1"


@dataclass(slots=True)
class Service:
    """A process that serves; `started_s` is how long it took to say so."""

    process: subprocess.Popen[str]
    address: str
    started_s: float
    token: str = ""

    def asker(self, token: str | None = None) -> Asker:
        """A connection to it."""
        return Asker(self.address, self.token if token is None else token)

    @property
    def rss_mb(self) -> float:
        """Its memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024.0


class Asker:
    """One connection that is kept."""

    def __init__(self, address: str, token: str = "") -> None:
        self._address = address.removeprefix("http://")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection = http.client.HTTPConnection(self._address, timeout=120)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, f"/api/v1{path}", data, self._headers)
            answer = self._connection.getresponse()
            read = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        return answer.status, json.loads(read)


@dataclass(slots=True)
class Times:
    """How long requests took."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    def quantile_ms(self, percent: int) -> float:
        """So many of a hundred took less; nan where none was answered."""
        if len(self.seconds) < 2:
            return 1e3 * self.seconds[0] if self.seconds else math.nan
        return 1e3 * statistics.quantiles(self.seconds, n=100)[percent - 1]

    def __str__(self) -> str:
        return (
            f"{self.quantile_ms(50):7.1f} ms median {self.quantile_ms(99):8.1f} ms p99"
            f" ({len(self.seconds)} asked, {self.refused} refused)"
        )


def write_past(state: Path, ended: int) -> None:
    """A log of jobs that have ended, spread over the last month."""
    store = SqliteStore(state / "events.db")
    nodes = parse_cluster("63x8:a100").nodes
    first = time.time() - MONTH_S
    events: list[tuple[float, Event]] = [(first, NodeUp(node)) for node in nodes]
    for number in range(ended):
        at = first + 1.0 + number * (MONTH_S - 3600.0) / ended
        events += _life(number, at, nodes[number % len(nodes)].id)
        if len(events) > 4000:
            store.append(events)
            events = []
    store.append(events)
    store.close()


def _life(number: int, at: float, node: Any) -> Iterator[tuple[float, Event]]:
    name = JobId(f"past-{number:06d}")
    tenant = TENANTS[number % len(TENANTS)]
    launch = Launch(("python", "train.py"), name=f"past{number}")
    job = Job(name, at, Demand(1), tenant=tenant, user="somebody", launch=launch)
    on = Allocation((Slice(node, (number % 8,)),))
    yield at, Submitted(job)
    yield at + 1e-4, Decided(number + 1, {name: on})
    yield at + 2e-4, Started(name, 1)
    yield at + 20.0 / (1.0 + number % 7), Finished(name, 1)


@contextmanager
def service(state: Path, policy: str) -> Iterator[Service]:
    """A service on a state folder."""
    began = time.monotonic()
    command = [sys.executable, "-c", SERVE, ENGINE, str(state), policy]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        yield Service(process, address, time.monotonic() - began)
    finally:
        process.terminate()
        process.wait(120)


def job(number: int, tenant: str) -> dict[str, Any]:
    hints = {"duration_s": 3600 + 97 * (number % 50)}
    return {"name": f"job{number}", "gpus": 1, "hints": hints, "tenant": tenant}


def repeat(
    it: Service, seconds: float, every_s: float, ask: Callable[[Asker, int], int], token: str = ""
) -> Times:
    """Ask again and again from one connection."""
    times, asker = Times(), it.asker(token)
    until, number = time.monotonic() + seconds, 0
    while (began := time.monotonic()) < until:
        try:
            status = ask(asker, number)
        except (OSError, http.client.HTTPException):
            status = 0
        if status == 429 or not status:
            times.refused += 1
        else:
            times.seconds.append(time.monotonic() - began)
        number += 1
        time.sleep(max(0.0, began + every_s - time.monotonic()))
    return times


@contextmanager
def polled(it: Service, seconds: float) -> Iterator[None]:
    """Ten people look at their jobs meanwhile."""

    def look(asker: Asker, number: int) -> int:
        paths = ("/jobs?state=running&limit=100", "/cluster", "/jobs?limit=50")
        return asker.ask("GET", paths[number % len(paths)])[0]

    threads = [
        threading.Thread(target=repeat, args=(it, seconds, POLL_S, look, it.token))
        for _ in range(POLLERS)
    ]
    for thread in threads:
        thread.start()
        time.sleep(POLL_S / POLLERS)  # people do not ask at the same moment
    yield
    for thread in threads:
        thread.join()


def look_at(it: Service, seconds: float) -> dict[str, str]:
    """What one service answers, and how fast, with ten clients that poll."""
    times: dict[str, str] = {}
    month = f"/accounting?since={time.time() - MONTH_S:.0f}&limit=100"
    kinds: dict[str, Callable[[Asker, int], int]] = {
        "submit": lambda asker, number: asker.ask("POST", "/jobs", job(number, "t0"))[0],
        "list, a page of 100": lambda asker, _: asker.ask("GET", "/jobs?limit=100")[0],
        "accounts of a month": lambda asker, _: asker.ask("GET", month)[0],
    }
    for name, ask in kinds.items():
        with polled(it, seconds):
            times[name] = str(repeat(it, seconds, 0.05, ask, it.token))
    times["memory"] = f"{it.rss_mb:7.0f} MB"
    return times


def restart(state: Path, policy: str) -> dict[str, str]:
    """How long until a service is back, with ten clients that ask all the time."""
    with service(state, policy) as it:
        asker = it.asker()
        began = time.monotonic()
        with polled(it, 3.0):
            asker.ask("GET", "/jobs?limit=100")
            answered_s = time.monotonic() - began
        return {"restart": f"{it.started_s:7.1f} s, first page {answered_s:.2f} s later"}


def flood(it: Service, seconds: float) -> dict[str, str]:
    """What three tenants feel when the fourth asks as often as it can."""
    it.token = it.asker("").ask("POST", "/tokens", {"role": "admin"})[1]["token"]
    tokens = {
        tenant: it.asker().ask("POST", "/tokens", {"role": "user", "tenant": tenant})[1]["token"]
        for tenant in TENANTS
    }
    calm = _three(it, tokens, seconds)
    stop, asked, refused = (MAKE.Event(), MAKE.Value("i", 0), MAKE.Value("i", 0))
    args = (it.address, tokens["t3"], stop, asked, refused)
    flooding = MAKE.Process(target=hammer, args=args)  # not in our way: only in the service's
    flooding.start()
    while not asked.value:
        time.sleep(0.1)
    time.sleep(2.0)
    busy = _three(it, tokens, seconds)
    stop.set()
    flooding.join()
    ratio = busy.quantile_ms(99) / calm.quantile_ms(99)
    return {
        "submit of three, calm": str(calm),
        "submit of three, flooded": str(busy),
        "p99 against calm": f"{ratio:7.2f} times",
        "median against calm": f"{busy.quantile_ms(50) / calm.quantile_ms(50):7.2f} times",
        "flood": f"{asked.value} asked, {refused.value} refused",
    }


def hammer(address: str, token: str, stop: Any, asked: Any, refused: Any) -> None:
    """Ask for what is expensive from many connections, as fast as it is answered.

    Behind everybody else, as it would come from other machines.
    """
    os.nice(10)

    def ask_on(part: int) -> None:
        asker, number = Asker(address, token), 0
        paths = ("/accounting", "/jobs/past-000003/events", "/jobs/nobody", "/jobs?limit=1000")
        while not stop.is_set():
            number += 1
            try:
                if number % 5:
                    status, _ = asker.ask("GET", paths[(part + number) % len(paths)])
                else:
                    status, _ = asker.ask("POST", "/jobs", job(number, "t3"))
            except (OSError, http.client.HTTPException):
                status = 429
            with asked.get_lock():
                asked.value += 1
                refused.value += status == 429

    threads = [threading.Thread(target=ask_on, args=(part,)) for part in range(FLOOD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _three(it: Service, tokens: dict[str, str], seconds: float) -> Times:
    all_times = Times()

    def submit(tenant: str) -> None:
        times = repeat(
            it,
            seconds,
            0.2,
            lambda asker, number: asker.ask("POST", "/jobs", job(number, tenant))[0],
            tokens[tenant],
        )
        all_times.seconds += times.seconds
        all_times.refused += times.refused

    threads = [threading.Thread(target=submit, args=(tenant,)) for tenant in TENANTS[:3]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return all_times


def report(ended: int, policy: str, seconds: float) -> None:
    """Print every figure beside that of a service without a past."""
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        for state in (empty, full):
            state.mkdir(mode=0o700)
        began = time.monotonic()
        write_past(full, ended)
        print(f"{ended:,} ended jobs written in {time.monotonic() - began:.0f} s", flush=True)
        by_name: dict[str, dict[str, str]] = {}
        for name, state in (("no past", empty), ("long past", full)):
            with service(state, policy) as it:
                by_name[name] = {"first start": f"{it.started_s:7.1f} s", **look_at(it, seconds)}
            by_name[name] |= restart(state, policy)
            with service(state, policy) as it:
                by_name[name] |= flood(it, seconds)
            size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
            by_name[name]["disk"] = f"{size / 1e6:7.0f} MB"
        for figure in by_name["no past"]:
            print(figure)
            for name, held in by_name.items():
                print(f"  {name:10s} {held[figure]}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
