"""The numbers of every route before and after a restart, at random moments of hours of use.

    python -m benchmarks.books [--steps 1000] [--seed 0]

A service on the simulated engine lives through drawn commands of three tenants and an admin, in
virtual time. After many of them its log is read again as a start does, with a snapshot or without
one, and every route is asked before and after, at the same instant: nothing may differ. Now and
then the service ends and another begins, with the same jobs under way; then the accounts are
compared. Prints how many values were compared, and the first that differ.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from tests.scenarios.live import AtOnce, run_virtually

from benchmarks.loop_stalls import routes
from weft.app.engine import build_engine
from weft.app.serve import live
from weft.app.serve.live import Live, Settings
from weft.app.state.folder import LOG
from weft.core.spec.registry import read_spec
from weft.runtime.deciding.live_policy import live_policy
from weft.runtime.recovery import follow
from weft.runtime.recovery.recover import recover
from weft.service import context, needs_reader
from weft.service import main as service_main
from weft.service.budget import aside
from weft.service.main import create_app
from weft.store.sqlite import SqliteStore

API = "/api/v1"
ENGINE = "simulated:cluster=2x4:a100+1x4:v100,speed=1"
POLICIES = ("fifo", "srtf", "las", "sjf", "weft", "drf|backfill")
TENANTS = ("red", "blue", "green")
GPUS = 12
NODES = ("a100-0", "a100-1", "v100-0")
# Not asked: streams of what others show, pages, simulations of what may come, and output of jobs.
LEFT_OUT = ("/events", "/watch", "/queue", "/explain", "/logs", "/ranks", "/{name:path}", "/docs")
PAGES = ("/", "/openapi.json", f"{API}/policies", f"{API}/audit")
# Of one process by what they mean: times of its work, and how often it did something.
OF_PROCESS = (
    "healthy",
    "append",
    "decision_",
    "decisions_timed",
    "loop_",
    "long_turns",
    "requests_refused",
)
# After a start it is decided again: jobs may start and stop, but what was used and due stays.
KEPT = ("id", "tenant", "submitted", "ended", "gpu_seconds", "entitled_gpu_seconds", "weight")
CLOSE = 1e-9
STEP_S = 400.0
Shown = dict[str, Any]


@dataclass
class Comparison:
    """What was compared, and what differs: the route, the place, and both values."""

    moments: int = 0
    restarts: int = 0
    values: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, before: Shown, after: Shown, passed_s: float = 0.0) -> None:
        """Compare everything that two readings show, with so much time between them."""
        first, then = dict(_leaves(before)), dict(_leaves(after))
        self.values += len(first)
        for place in sorted(first.keys() | then.keys()):
            was, now = first.get(place), then.get(place)
            if not _alike(was, now, GPUS * passed_s):
                self.wrong.append(f"{what}: {place}: {was!r}, then {now!r}")


def _alike(was: Any, now: Any, more: float) -> bool:
    if isinstance(was, int | float) and isinstance(now, int | float):
        return abs(was - now) <= CLOSE * max(abs(was), abs(now), 1.0) + more
    return bool(was == now)


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for name, part in value.items():
                yield from _leaves(part, f"{at}.{name}")
        case list():
            for number, part in enumerate(value):
                yield from _leaves(part, f"{at}[{number}]")
        case _:
            yield at, value


class Service:
    """A service in virtual time that can be ended and begun again."""

    def __init__(self, folder: Path, seconds: Callable[[], float], rng: random.Random) -> None:
        self._folder, self._seconds, self._rng = folder, seconds, rng
        self._asked = self._copies = 0
        self.jobs: list[str] = []
        self.seen = Comparison()

    @asynccontextmanager
    async def open(self, engine: Any) -> AsyncIterator[None]:
        """Serve with this engine, which has the jobs of the service before."""
        settings = Settings(engine=ENGINE, state=self._folder, decide_in="service")
        with (
            patch.object(live, "build_engine", lambda *_, **__: engine),
            patch.object(service_main, "Live", partial(Live, seconds=self._seconds)),
        ):
            app = create_app(settings)
            async with app.router.lifespan_context(app):
                self.live: Live = app.state.context.live
                transport = httpx.ASGITransport(app=app)
                async with httpx.AsyncClient(
                    transport=transport, base_url="http://127.0.0.1"
                ) as self._client:
                    yield

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a command; a refusal is one, too."""
        answer = await self._client.request(method, f"{API}{path}", json=body)
        assert answer.status_code < 500, (method, path, body, answer.text)
        return answer.json()

    async def act(self) -> None:
        """One drawn command of somebody, and some time."""
        kind = self._rng.choices(("submit", "job", "rules"), (12, 4, 3))[0]
        if kind == "submit" or not self.jobs:
            made = await self.ask("POST", "/jobs", self._job())
            self.jobs += made.get("jobs") or ([made["id"]] if "id" in made else [])
        elif kind == "job":
            await self._command(self._rng.choice(self.jobs[-30:]))
        else:
            await self._rule()
        await asyncio.sleep(self._rng.choice((0.0, 0.1, 2.0, STEP_S)) * self._rng.random())

    def _job(self) -> dict[str, Any]:
        draw = self._rng
        least = draw.choice((1, 1, 2, 4))
        self._asked += 1
        body: dict[str, Any] = {"id": f"job-{self._asked}", "tenant": draw.choice(TENANTS)}
        body["gpus"] = least
        body["hints"] = {"duration_s": draw.uniform(5.0, 4000.0)}
        body["priority"] = draw.choice(("normal", "normal", "high", "spot"))
        if draw.random() < 0.3:
            body["hints"] |= {"fails_at_s": draw.uniform(1.0, 500.0), "fails_times": 2}
        if draw.random() < 0.3:
            body["gpus"] = {"min": least, "max": 4}
        elif least == 1 and draw.random() < 0.3:
            body["share"] = 0.5
        if draw.random() < 0.2:
            body["deadline_s"] = draw.uniform(60.0, 5000.0)
        if draw.random() < 0.2 and self.jobs:
            body["after"] = {"any": [draw.choice(self.jobs)]}
        if draw.random() < 0.1:
            body["sweep"] = {"grid": {"x": [1, 2, 3]}}
        return body

    async def _command(self, job: str) -> None:
        what = self._rng.choice(("cancel", "suspend", "resume", "priority"))
        if what == "cancel":
            await self.ask("DELETE", f"/jobs/{job}")
        elif what == "priority":
            level = self._rng.choice(("low", "normal", "high"))
            await self.ask("PUT", f"/jobs/{job}/priority", {"priority": level})
        else:
            await self.ask("POST", f"/jobs/{job}/{what}")

    async def _rule(self) -> None:
        draw, what = self._rng, self._rng.randrange(5)
        node = draw.choice(NODES)
        if what == 0:
            await self.ask("PUT", "/policy", {"policy": draw.choice(POLICIES)})
        elif what == 1:
            some = draw.sample(TENANTS, 2)
            amounts = {"weights": {some[0]: draw.choice((0.5, 2.0, 3.0))}}
            amounts |= {draw.choice(("limits", "own")): {some[1]: draw.choice((1.0, 2.0, 4.0))}}
            await self.ask("PUT", "/quotas", amounts)
        elif what == 2:
            await self.ask("POST", f"/nodes/{node}/drain")
        elif what == 3:
            await self.ask("POST", f"/nodes/{node}/undrain")
        else:
            whose = draw.choice((None, *TENANTS))
            await self.ask("PUT", f"/reservations/r{node}", {"nodes": [node], "tenant": whose})
            await asyncio.sleep(draw.uniform(0.0, STEP_S))
            await self.ask("DELETE", f"/reservations/r{node}")

    async def show(self) -> Shown:
        """What every route shows of the log."""
        shown: Shown = {}
        for path in paths():
            for filled in self._fill(path):
                answer = await self._client.get(filled)
                if path == "/metrics":
                    shown[path] = dict(_metrics(answer.text))
                elif "json" in answer.headers["content-type"]:
                    shown[filled] = answer.json()
                else:
                    shown[filled] = answer.text
        return shown

    def _fill(self, path: str) -> list[str]:
        if "{job_id}" in path:
            return [path.replace("{job_id}", job) for job in self.jobs[-12:]]
        if "{node_id}" in path:
            return [path.replace("{node_id}", node) for node in NODES]
        return [f"{path}?limit=1000" if path.endswith(("/jobs", "/accounting")) else path]

    async def compare(self) -> None:
        """Read the log again, and ask every route about both."""
        driver = self.live.driver
        if self._rng.random() < 0.5:
            driver.saver.save_soon()
        moment, before = self._moment(), await self.show()
        self._copies += 1
        copy = self._folder.parent / f"copy-{self._copies}.db"
        with (
            closing(sqlite3.connect(self._folder / LOG)) as log,
            closing(sqlite3.connect(copy)) as other,
        ):
            log.backup(other)
            if self._rng.random() < 0.5:
                other.execute("DELETE FROM snapshots")
                other.commit()
        with closing(SqliteStore(copy)) as store:
            again = recover(store, driver._make)
            again.scheduler.use(live_policy(again.policy))  # as a start does
            known, driver._known = driver._known, again
            try:
                after = await self.show()
            finally:
                driver._known = known
        copy.unlink()
        if self._moment() != moment:  # something went on meanwhile: a snapshot, a decision
            return
        self.seen.moments += 1
        self.seen.add(f"event {driver.seq}", before, after)

    def _moment(self) -> tuple[float, int, bool]:
        driver = self.live.driver
        return driver.now, driver.seq, bool(driver.decisions.asking)


def paths() -> list[str]:
    """The routes that are compared."""
    return [
        path
        for method, path in routes()
        if method == "GET"
        and not path.endswith(LEFT_OUT)
        and not path.startswith("/health")  # of this instant on this machine
        and path not in PAGES
    ]


def _metrics(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and not name.removeprefix("weft_").startswith(OF_PROCESS):
            yield name, float(value)


async def _live_through(
    folder: Path, steps: int, rng: random.Random, seconds: Callable[[], float]
) -> Comparison:
    engine = build_engine(read_spec("engine", ENGINE), seconds=seconds)
    service, left = Service(folder / "state", seconds, rng), steps
    while left > 0:
        async with service.open(engine):
            for _ in range(rng.randint(10, 40)):
                await service.act()
                left -= 1
                if rng.random() < 0.25:
                    await service.compare()
            ended, before = seconds(), await service.show()
        async with service.open(engine):
            after = await service.show()
            service.seen.restarts += 1
            service.seen.add("restart", _accounts(before), _accounts(after), seconds() - ended)
    return service.seen


def _accounts(shown: Shown) -> Shown:
    books = shown[f"{API}/accounting?limit=1000"]
    return {
        part: [{name: row[name] for name in KEPT if name in row} for row in books[part]]
        for part in ("tenants", "jobs")
    }


def compare_books(folder: Path, steps: int, seed: int) -> Comparison:
    """Live through so many commands in an empty folder."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        for module in (context, aside, follow):  # else time would jump while a thread works
            stack.enter_context(patch.object(module, "ThreadPoolExecutor", AtOnce))
        stack.enter_context(patch.object(needs_reader, "FRESH_S", 0.0))  # each reading its own
        return run_virtually(partial(_live_through, folder, steps, rng))


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-books-") as folder:
        seen = compare_books(Path(folder), asked.steps, asked.seed)
    print("\n".join(seen.wrong[:20]))
    print(
        f"{asked.steps} commands, {seen.moments} moments, {seen.restarts} restarts, "
        f"{seen.values:,} values compared, {len(seen.wrong)} differ"
    )
    return 1 if seen.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
