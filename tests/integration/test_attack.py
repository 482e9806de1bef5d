"""What an attack on the service did, in its own numbers: work is counted, never timed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, bearer, token
from tests.integration.test_local_details import job
from tests.integration.test_local_hostile import listening_at
from tests.waiting import LIMIT_S
from weft.app.serve.live import Live, Settings
from weft.core.errors import EngineError, InvalidConfig, did_you_mean
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.engines.machine import local_manager
from weft.runtime.loop.file_limit import LEAST, raise_file_limit
from weft.runtime.records.job_records import JobRecord, row_of
from weft.service.access.tokens import ANYBODY
from weft.service.access.trust import trust_warnings
from weft.service.jobs import job_names
from weft.service.main import create_app
from weft.service.routes.jobs.jobs import PART
from weft.service.streams.event_json import Rendered
from weft.store.sqlite import SqliteReader, SqliteStore

HALF_OPEN, FILES = 1_100, 1_024
ENDED = 21_000
SERVE = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from weft.app.serve.live import Settings
from weft.service.main import serve
settings = Settings(engine="local:slots=2,warm=false,cpu=true", state=Path(sys.argv[1]), port=0)
serve(settings, ready=lambda address: print(address, flush=True))
"""


# ---- connections


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-c", SERVE, str(tmp_path / "state"), str(FILES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
            assert process.poll() is None
        finally:
            process.terminate()
        assert process.wait(LIMIT_S) == 0


def test_1100_half_open_connections_without_a_token_stop_nobody(service: str) -> None:
    """More than it may open files; jobs' news come through files, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    host, port = service.removeprefix("http://").split(":")
    with httpx.Client(base_url=service, timeout=LIMIT_S, trust_env=False, verify=False) as client:
        mine = bearer(token(client, "user", "a", token(client, "admin")))
        body = {"command": ["true"], "workdir": "/"}
        with contextlib.ExitStack() as held:
            for _ in range(HALF_OPEN):
                connection = held.enter_context(
                    socket.create_connection((host, int(port)), LIMIT_S)
                )
                with contextlib.suppress(ConnectionError):  # one too many
                    connection.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: ")
            newcomer = httpx.post(
                f"{service}{API}/jobs", json=body, headers=mine, trust_env=False, verify=False
            )
            assert newcomer.status_code == 201, newcomer.text
            path = f"{API}/jobs/{newcomer.json()['id']}"
            while (answer := client.get(path, headers=mine)).json().get("state") != "succeeded":
                assert answer.status_code == 200, answer.text
                assert answer.json()["state"] in ("pending", "starting", "running")
                time.sleep(0.1)  # not more often than a tenant may
            assert client.get("/health/ready").json()["ready"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_few_files_are_refused_at_the_start_and_more_are_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: taken.append(both))

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 65_536))
    assert raise_file_limit() == 65_536
    assert taken == [(65_536, 65_536)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 512))
    with caplog.at_level(logging.WARNING):
        raise_file_limit()
    assert "limit=512 open files" in caplog.text
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LEAST - 1, LEAST - 1))
    with pytest.raises(InvalidConfig, match="needs 256"):
        raise_file_limit()


# ---- agents


@pytest.mark.parametrize("number", [errno.EACCES, errno.EISDIR, errno.EAGAIN, errno.ENOMEM])
def test_an_agent_that_the_kernel_does_not_start_fails_its_attempt_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, errno.errorcode[number])

    async def life() -> None:
        async with listening_at(tmp_path) as site:
            with monkeypatch.context() as broken:
                broken.setattr(local_manager, "spawn", refuse)
                with pytest.raises(EngineError, match=f"cannot be started: .*{number}|started"):
                    await site.start(job("no-agent", "true"))
            await site.works()
            assert site.engine.health.ok

    asyncio.run(life())


# ---- 21,000 ended jobs


def past(count: int) -> Iterator[JobRecord]:
    launch = Launch(("python", "train.py"), name="train")
    for i in range(count):
        job = Job(JobId(f"past-{i:06d}"), float(i), tenant=f"t{i % 4}", launch=launch)
        yield JobRecord(job, float(i), "succeeded", "", float(i), i + 9.0, 1, 1, number=i)


@contextlib.asynccontextmanager
async def with_a_past(tmp_path: Path, count: int) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    """A service on which so many jobs have ended."""
    app = create_app(Settings(engine="simulated:cluster=2x4:a100,speed=1", state=tmp_path))
    async with app.router.lifespan_context(app):
        live: Live = app.state.context.live
        jobs = live.driver.ledger.jobs
        live.store.ended.put([row_of(record) for record in past(count)])
        jobs.following = count
        jobs.count_ended()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client, app.state.context


class Work:
    """Rows read of the table of ended jobs, and names that a mistyped one was compared with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.compared = 0
        asked, close = SqliteReader.query, did_you_mean

        def ask(reading: SqliteReader, words: str, values: Any = ()) -> list[Any]:
            rows = asked(reading, words, values)
            self.rows += len(rows)
            return rows

        def compare(name: str, known: Any) -> str:
            names = [*known]
            self.compared += len(names)
            return close(name, names)

        monkeypatch.setattr(SqliteReader, "query", ask)
        monkeypatch.setattr("weft.service.jobs.job_names.did_you_mean", compare)


def test_what_a_tenant_asks_of_21000_ended_jobs_reads_what_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounts four times, events of a job eight times, ids that nobody has, pages of a list."""

    async def life() -> dict[str, tuple[int, int]]:
        seen = {}
        async with with_a_past(tmp_path, ENDED) as (client, _):
            for name, path, times in (
                ("accounts", "/accounting?limit=100", 4),
                ("of a month", "/accounting?since=20000&limit=100", 4),
                ("events", "/jobs/past-000003/events", 8),
                ("unknown", "/jobs/past-99", 8),
                ("list", "/jobs?limit=100&after=past-010000", 4),
                ("counts", "/cluster", 4),
            ):
                work = Work(monkeypatch)
                for _ in range(times):
                    answer = await client.get(f"{API}{path}")
                    assert answer.status_code in (200, 404)
                seen[name] = (work.rows // times, work.compared // times)
                monkeypatch.undo()
        return seen

    seen = asyncio.run(life())

    assert seen["accounts"][0] == 101
    assert seen["of a month"][0] <= 102
    assert seen["events"][0] <= 10
    assert seen["unknown"][0] <= job_names.RECENT + 2
    assert seen["unknown"][1] <= job_names.RECENT
    assert seen["list"][0] <= 102
    assert seen["counts"] == (0, 0)


def test_a_page_of_a_thousand_lets_others_go_first_after_every_part(tmp_path: Path) -> None:
    async def life() -> int:
        async with with_a_past(tmp_path, 2_000) as (client, _):
            page = asyncio.ensure_future(client.get(f"{API}/jobs?limit=1000"))
            turns = 0
            while not page.done():
                turns += 1
                await asyncio.sleep(0)
            assert len(page.result().json()["jobs"]) == 1000
            return turns

    assert asyncio.run(life()) >= 1000 // PART


class Counted:
    """How often the log's past was read, and how many events were written out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.asked = self.written = 0
        since, text = SqliteStore.since, Rendered.text

        def read(store: SqliteStore, seq: int, limit: int | None = None) -> list[Any]:
            self.reads += 1
            return since(store, seq, limit)

        def write(rendered: Rendered, *args: Any) -> str:
            before = len(rendered._texts)
            rendered_text = text(rendered, *args)
            self.asked += 1
            self.written += len(rendered._texts) - before
            return rendered_text

        monkeypatch.setattr(SqliteStore, "since", read)
        monkeypatch.setattr(Rendered, "text", write)


async def listen(context: Any, until: int) -> int:
    """Submits that one stream tells of."""
    heard, driver = 0, context.driver
    async for rows in driver.subscribe(driver.seq):
        heard_text = "".join(context.rendered.text(driver, ANYBODY, row) for row in rows)
        heard += heard_text.count("event: Submitted")
        if heard == until:
            break
    return heard


def test_500_streams_read_nothing_of_the_log_and_each_event_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def life() -> tuple[list[int], Counted]:
        async with with_a_past(tmp_path, 10) as (_, context):
            counted = Counted(monkeypatch)
            streams = [asyncio.create_task(listen(context, 10)) for _ in range(500)]
            await asyncio.sleep(0)
            for i in range(10):
                await context.driver.submit(Job(JobId(f"new-{i}"), hints={"duration_s": 1e9}))
            return await asyncio.gather(*streams), counted

    heard, counted = asyncio.run(life())

    assert heard == [10] * 500
    assert counted.reads == 0
    assert counted.asked >= 500 * 10
    assert counted.written < 100


def test_who_reads_the_past_does_not_keep_anybody_from_writing(tmp_path: Path) -> None:
    """All threads that read stand still, and a submit is on disk all the same."""

    async def life() -> str:
        go_on = threading.Event()
        async with with_a_past(tmp_path, 10) as (client, context):
            reading = [asyncio.ensure_future(context.read(go_on.wait)) for _ in range(32)]
            await asyncio.sleep(0.05)
            body = {"gpus": 1, "hints": {"duration_s": 5}}
            async with asyncio.timeout(LIMIT_S):
                made = await client.post(f"{API}/jobs", json=body)
            assert not any(task.done() for task in reading)
            go_on.set()
            await asyncio.gather(*reading)
            return str(made.json()["id"])

    made = asyncio.run(life())

    with contextlib.closing(SqliteStore(tmp_path / "events.db")) as store:
        assert any(made in repr(event) for _, _, event in store.since(0))


# ---- what is said at the start


def test_without_tokens_and_users_the_start_says_what_that_means(tmp_path: Path) -> None:
    async def life() -> list[str]:
        app = create_app(Settings(engine="local:slots=1,warm=false,cpu=true", state=tmp_path))
        async with app.router.lifespan_context(app):
            context = app.state.context
            return trust_warnings(context.live, context.tokens)

    done = asyncio.run(life())

    assert any("any user of this machine may run jobs as" in line for line in done)
    assert any("tenants can read each other's files" in line for line in done)
