"""How long one request keeps all others waiting: the loop's longest stall at each route's worst.

    python -m benchmarks.loop_stalls [--jobs 2000] [--policy fifo]

Runs a service on the simulated engine in this process with so many jobs waiting, sends each route
the worst that is known of it, and prints the longest single step of the service's loop: while one
step lasts nobody else is answered. It counts in CPU time of the loop's thread, so that a busy
machine does not; the time that passed during that step is printed beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.events
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi.routing import APIRoute

from benchmarks.worst_requests import Request, worst_requests
from weft.app.serve.live import Settings
from weft.app.serve.rules import TenantLimits
from weft.service.main import ShortCollections, serve_async
from weft.service.routes import API, ROOT

PREFIX = "/api/v1"
LIMIT_S = 0.1
LOOK_S, DEEP = 0.05, 8
WATCHERS = 100
STILL = "simulated:cluster=32x8:a100,speed=0.001"  # where nothing ends
STARTING = "(starting, before anybody is answered)"
FILLING = "(submitting and deciding)"


@dataclass(slots=True)
class Longest:
    """The longest step of a loop, and what it was."""

    cpu_s: float = 0.0
    passed_s: float = 0.0
    what: str = ""


class Steps:
    """Measures every step of the loops of this process; `longest` since it was last taken.

    A step that goes on for long is looked at while it does: where it was is told with it.
    """

    def __init__(self) -> None:
        self.longest = Longest()
        self._step: tuple[int, float] | None = None  # the thread that is in one, and since when
        self._where = ""
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_S)
            if self._step is not None and time.perf_counter() - self._step[1] > LOOK_S:
                frame = sys._current_frames().get(self._step[0])
                lines = traceback.extract_stack(frame)[-DEEP:] if frame is not None else []
                self._where = " > ".join(
                    f"{Path(line.filename).name}:{line.name}" for line in lines
                )

    @contextmanager
    def measured(self) -> Iterator[Steps]:
        """Measure while this is open."""
        handle: Any = asyncio.events.Handle
        usual: Callable[[Any], None] = handle._run

        def run(step: Any) -> None:
            now = time.perf_counter()
            self._step = threading.get_ident(), now
            began = time.thread_time()
            usual(step)
            spent, self._step = time.thread_time() - began, None
            if spent > self.longest.cpu_s:
                self.longest = Longest(spent, time.perf_counter() - now, self._where)

        handle._run = run
        try:
            yield self
        finally:
            handle._run = usual

    def take(self) -> Longest:
        """The longest until now; counting begins anew."""
        longest, self.longest = self.longest, Longest()
        return longest


class Service(threading.Thread):
    """A service in a thread of this process."""

    def __init__(self, jobs: int, policy: str, engine: str = STILL) -> None:
        super().__init__(daemon=True)
        boundless = TenantLimits(rate=0.0, streams=0.0, jobs=0.0)
        self._settings = Settings(engine=engine, port=0, policy=policy, limits=boundless)
        self._jobs = jobs
        self._ready = threading.Event()
        self._collections = ShortCollections()
        self.address = ""

    def begin(self) -> httpx.Client:
        """A client of it, once it answers."""
        self.start()
        self._ready.wait()
        client = httpx.Client(base_url=self.address, timeout=600.0, trust_env=False)
        client.get("/healthz").raise_for_status()
        return client

    def fill(self, client: httpx.Client) -> None:
        """Submit its jobs."""
        for start in range(0, self._jobs, 1000):
            values = [*range(min(1000, self._jobs - start))]
            body = {"gpus": 1, "hints": {"duration_s": 3600}, "sweep": {"grid": {"n": values}}}
            client.post(f"{PREFIX}/jobs", json=body).raise_for_status()

    def end(self) -> None:
        """Stop it."""
        self._loop.call_soon_threadsafe(self._until.set)
        self.join()

    def run(self) -> None:
        """Serve."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._until = asyncio.get_running_loop(), asyncio.Event()
        try:
            await serve_async(self._settings, ready=self._heard, until=self._until.wait())
        finally:
            self._collections.end()

    def _heard(self, address: str) -> None:
        self.address = address
        self._collections.begin()  # as `serve` does
        self._ready.set()


def routes() -> list[tuple[str, str]]:
    """Every route of the API, as (method, path)."""
    return [
        (method, route.path)
        for router in (*ROOT, *API)
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]


def send(client: httpx.Client, request: Request) -> int:
    """The status of an answer; of a stream, some of it is read."""
    headers = {"Content-Type": "application/json", **request.headers}
    with client.stream(
        request.method, request.path, content=request.body, headers=headers
    ) as answer:
        if not request.endless:
            answer.read()
            return answer.status_code
        until = time.monotonic() + 3.0
        for _ in answer.iter_bytes():
            if time.monotonic() > until:
                break
        return answer.status_code


def watch_in_crowds(client: httpx.Client, count: int) -> None:
    """So many read the live view at the same time."""
    request = Request("GET", f"{PREFIX}/watch", "100 readers", endless=True)

    def follow() -> None:
        with httpx.Client(base_url=client.base_url, timeout=600.0, trust_env=False) as own:
            send(own, request)

    threads = [threading.Thread(target=follow) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(jobs: int, policy: str, only: str = "") -> dict[str, Longest]:
    """The longest step of the loop for each route and input."""
    by_step: dict[str, Longest] = {}
    service = Service(jobs, policy)
    with Steps().measured() as steps:
        client = service.begin()
        show(STARTING, steps.take())  # nobody waits for an answer yet: told, not counted
        service.fill(client)
        ids = [job["id"] for job in client.get(f"{PREFIX}/jobs?limit=5").json()["jobs"]]
        time.sleep(2.0)  # decisions about what was just submitted
        by_step[FILLING] = steps.take()
        show(FILLING, by_step[FILLING])
        for method, path in routes():
            for request in worst_requests(method, path, ids):
                if only and only not in path:
                    continue
                status = send(client, request)
                assert status < 500, (request.path[:100], request.what, status)
                name = f"{method} {path}: {request.what} ({status})"
                by_step[name] = steps.take()
                show(name, by_step[name])
        if only in f"{PREFIX}/watch":
            watch_in_crowds(client, WATCHERS)
            name = f"GET {PREFIX}/watch: {WATCHERS} readers at once"
            by_step[name] = steps.take()
            show(name, by_step[name])
        client.close()
    service.end()
    return by_step


def show(name: str, longest: Longest) -> None:
    """Print one, with what kept the loop if that was too long."""
    mark = f"  TOO LONG: {longest.what}" if longest.cpu_s > LIMIT_S else ""
    took = f"{longest.cpu_s * 1e3:8.1f} ms CPU {longest.passed_s * 1e3:8.1f} ms passed"
    print(f"{took}  {name}{mark}", flush=True)


def main() -> None:
    """Print the longest stall of each input as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--only", default="", help="routes whose path holds this")
    asked = parser.parse_args()
    measured = measure(asked.jobs, asked.policy, asked.only)
    worst = max(measured, key=lambda name: measured[name].cpu_s)
    late = sum(longest.cpu_s > LIMIT_S for longest in measured.values())
    print(f"{len(measured)} inputs, {late} stalled the loop for more than {LIMIT_S:g} s of CPU")
    print(f"longest: {measured[worst].cpu_s * 1e3:.1f} ms, {worst}")


if __name__ == "__main__":
    main()
