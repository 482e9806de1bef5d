"""Whatever one job does to its own files and processes, the others go on and health is true."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from operator import eq
from pathlib import Path

import pytest

from tests.integration.test_local_details import is_gone, job, python, until_log_has
from tests.waiting import LIMIT_S
from weft.core.events.event import Event, Failed, Finished, Started, StartFailed, Stopped
from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.engines.attempts import rounds, watch
from weft.engines.fleet import attempts
from weft.engines.local import LocalEngine
from weft.engines.machine import local_manager
from weft.runtime.loop.admit import AGENTS_LOST
from weft.runtime.loop.driver import Driver
from weft.store.memory import MemoryStore
from weft.wire.attempt import folder_of
from weft.wire.cgroups import find_base, remove_group
from weft.wire.processes import start_time

WAITS = "until test -e {}/go; do sleep 0.02; done"
ENDS = (Failed, Finished, Stopped, StartFailed)
LOOKED = find_base("weft-looking")
MAY_MAKE_GROUPS = LOOKED is not None and remove_group(LOOKED.path)
GROUPS = [False, pytest.param(True, marks=pytest.mark.skipif(
    not MAY_MAKE_GROUPS, reason="no control groups may be made here"
))]  # fmt: skip


class Site:
    """An engine that listens, and all that it told."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine, self.told = engine, list[Event]()
        self._news = engine.events()

    async def start(self, job: Job, attempt: int = 1) -> None:
        node = (await self.engine.nodes())[0]
        on = Allocation((Slice(node.id, tuple(range(job.demand.gpus))),))
        await self.engine.start(job, on, attempt)

    async def run(self, job: Job) -> tuple[Path, int]:
        """Start a job, wait until it runs, and say in which folder and by which agent."""
        await self.start(job)
        await self.until(lambda event: isinstance(event, Started))
        folder = folder_of(self.engine.state, job.id, 1)
        return folder, json.loads((folder / "claim.json").read_text())["pid"]

    async def end_of(self, name: str, attempt: int = 1) -> Event:
        """What is told last of an attempt."""
        return await self.until(
            lambda event: isinstance(event, ENDS) and (event.job, event.attempt) == (name, attempt)
        )

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        for event in self.told:
            if wanted(event):
                return event
        async with asyncio.timeout(LIMIT_S):
            async for event in self._news:
                self.told.append(event)
                if wanted(event):
                    return event
        raise AssertionError("the engine's events ended")

    async def works(self) -> None:
        """A job of somebody else runs to its end."""
        name = f"other-{len(self.told)}"
        await self.start(job(name, "true"))
        assert isinstance(await self.end_of(name), Finished)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that gives agents half a second to leave and to obey."""
    monkeypatch.setattr(local_manager, "LINGER_S", 0.5)
    monkeypatch.setattr(attempts, "OVERDUE_S", 0.5)


@contextlib.asynccontextmanager
async def listening_at(
    state: Path, expecting: tuple[str, ...] = (), **more: object
) -> AsyncIterator[Site]:
    engine = LocalEngine(state, slots=2, warm=False, cpu=True, **more)  # type: ignore[arg-type]
    known = await engine.adopt({(JobId(name), 1) for name in expecting})
    assert {name for name, _ in known} == set(expecting)
    try:
        yield Site(engine)
    finally:
        await engine.close()


def until_told(name: str, folder: Path, first: str = "true") -> Job:
    """Ends when there is a file `go` in the folder."""
    return job(name, "sh", "-c", f"{first}; until test -e {folder}/go; do sleep 0.05; done")


FORGED = '{"event":"ended","outcome":"finished","reason":""}'
SPOILS = {
    "removes its folder": 'cd /; rm -rf "$HERE"',
    "removes its job's folder": 'cd /; rm -rf "$(dirname "$HERE")"',
    "removes its events": "rm events.jsonl",
    "makes its events a pipe": "rm events.jsonl; mkfifo events.jsonl",
    "makes its events a folder": "rm events.jsonl; mkdir events.jsonl",
    "makes its events a link": "ln -sf /dev/zero events.jsonl",
    "writes a bad line": 'echo "{nonsense" >> events.jsonl',
    "writes an event of its own": """echo '{"event":"ended"}' >> events.jsonl""",
    "writes its end while it runs": f"echo '{FORGED}' >> events.jsonl",
    "writes no event at all": 'echo "[1]" >> events.jsonl',
    "writes a line without end": 'head -c 3000000 /dev/zero | tr "\\0" x >> events.jsonl',
    "cuts its events short": ": > events.jsonl",
    "replaces its claim": 'rm claim.json; echo "{}" > claim.json',
    "makes its claim a pipe": "rm claim.json; mkfifo claim.json",
    "removes its claim": "rm claim.json",
}


@pytest.mark.parametrize("after_s", [0, 1.5])
def test_jobs_that_spoil_their_own_files_are_quarantined_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_s: float
) -> None:
    monkeypatch.setattr(watch, "STARTING_S", 5.0)
    state = tmp_path / "state"

    async def go() -> None:
        async with listening_at(state) as site:
            for number, spoil in enumerate(SPOILS.values()):
                begin = f'echo $$ > {tmp_path}/{number}; HERE="$WEFT_ATTEMPT_DIR"; cd "$HERE"'
                script = f"{begin}; sleep {after_s}; {spoil}; exec sleep 1000"
                await site.start(job(f"bad-{number}", "sh", "-c", script))
            await site.works()
            for number, what in enumerate(SPOILS):
                end = await site.end_of(f"bad-{number}")

                assert isinstance(end, (Failed, StartFailed)), what
                assert end.reason.startswith("quarantined: "), (what, end)
                assert not end.lost, what
                assert is_gone(int((tmp_path / str(number)).read_text())), what
                assert not folder_of(state, f"bad-{number}", 1).exists(), what
            await site.works()
            assert site.engine.health.ok
            await site.start(job("bad-0", "true"), attempt=2)
            assert isinstance(await site.end_of("bad-0", 2), Finished)

    asyncio.run(go())


def test_what_was_spoilt_while_nobody_looked_does_not_stop_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with listening_at(tmp_path) as site:
            for name in ("spec", "adjust", "events", "good"):
                await site.start(job(name, "sleep", "1000"))
                await site.until(partial(eq, Started(JobId(name), 1)))

    async def second() -> None:
        async with listening_at(tmp_path, ("spec", "adjust", "events", "good")) as site:
            for name in ("spec", "adjust", "events"):
                end = await site.end_of(name)
                assert isinstance(end, (Failed, StartFailed))
                assert "quarantined" in end.reason
            await site.until(lambda event: event == Started(JobId("good"), 1))
            await site.engine.stop(JobId("good"), 1, 0.0)
            assert await site.end_of("good") == Stopped(JobId("good"), 1)
            await site.works()

    asyncio.run(first())
    (folder_of(tmp_path, "spec", 1) / "spec.json").write_text("{")
    (folder_of(tmp_path, "adjust", 1) / "adjust.json").write_text("[]")
    (folder_of(tmp_path, "events", 1) / "events.jsonl").write_bytes(b"\xff\xfe\n")
    asyncio.run(second())
    kept = sorted(path.name for path in (tmp_path / "quarantine").iterdir())
    assert kept == ["adjust@1", "events@1", "spec@1"]


def test_a_stray_file_among_the_marks_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "notes.txt").write_text("not yours")
    (tmp_path / "live" / "@").touch()
    (tmp_path / "live" / "gone@1").touch()
    os.mkfifo(tmp_path / "live" / "pipe@x")

    async def go() -> None:
        async with listening_at(tmp_path) as site:
            await site.works()
            async with asyncio.timeout(LIMIT_S):
                while (tmp_path / "live" / "gone@1").exists():
                    await asyncio.sleep(0.02)

    asyncio.run(go())
    assert (tmp_path / "live" / "notes.txt").read_text() == "not yours"


def test_too_many_open_files_are_told_and_survived(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def go() -> None:
        async with listening_at(tmp_path) as site:
            await site.start(job("before", "sleep", "1000"))
            await site.until(lambda event: isinstance(event, Started))
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            taken: list[socket.socket] = []
            with contextlib.suppress(OSError):
                while True:
                    taken.append(socket.socket())
            async with asyncio.timeout(LIMIT_S):
                while site.engine.health.ok:
                    await asyncio.sleep(0.05)
            assert "Too many open files" in site.engine.health.reason
            for taken_port in taken:
                taken_port.close()
            await site.engine.stop(JobId("before"), 1, 0.0)

            assert await site.end_of("before") == Stopped(JobId("before"), 1)
            await site.works()
            assert site.engine.health.ok

    try:
        asyncio.run(go())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("how", ["success", "cancel", "agent killed"])
def test_no_process_hides_from_the_end_of_its_job(tmp_path: Path, groups: bool, how: str) -> None:
    escapes = (
        f"env -i setsid sh -c 'echo $$ > {tmp_path}/escaped; exec sleep 1000' & "
        f"until test -s {tmp_path}/escaped; do sleep 0.02; done; "
    )
    script = escapes + ("exit 0" if how == "success" else "echo ready; sleep 1000")

    async def go() -> None:
        async with listening_at(tmp_path, groups=groups) as site:
            await site.start(job("sly", "sh", "-c", script))
            folder = folder_of(tmp_path, "sly", 1)
            if how != "success":
                await until_log_has(folder / "rank-0.log", "ready")
            if how == "cancel":
                await site.engine.stop(JobId("sly"), 1, 0.5)
            elif how == "agent killed":
                os.kill(json.loads((folder / "claim.json").read_text())["pid"], signal.SIGKILL)

            end = await site.end_of("sly")

            expected = {"success": Finished, "cancel": Stopped, "agent killed": Failed}
            assert isinstance(end, expected[how])
            assert is_gone(int((tmp_path / "escaped").read_text()))

    asyncio.run(go())


def test_an_agent_that_stands_still_is_given_up_and_only_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FROZEN_S", 0.5)
    freezer = (
        "import os, signal, time\n"
        "while True:\n"
        "    os.kill(os.getppid(), signal.SIGSTOP)\n"
        "    time.sleep(0.01)\n"
    )

    async def go() -> None:
        async with listening_at(tmp_path) as site:
            await site.start(job("freezer", *python(freezer)))
            end = await site.end_of("freezer")

            assert isinstance(end, Failed)
            assert end.lost
            assert "stopped by a signal" in end.reason
            await site.works()

    asyncio.run(go())


def test_an_agent_that_was_stopped_once_goes_on(tmp_path: Path) -> None:
    async def go() -> None:
        async with listening_at(tmp_path) as site:
            _, agent = await site.run(until_told("paused", tmp_path))
            os.kill(agent, signal.SIGSTOP)
            (tmp_path / "go").touch()

            assert await site.end_of("paused") == Finished(JobId("paused"), 1)

    asyncio.run(go())


def test_a_rank_that_was_stopped_goes_on_and_a_person_is_told(tmp_path: Path) -> None:
    async def go() -> None:
        async with listening_at(tmp_path) as site:
            folder, _ = await site.run(until_told("still", tmp_path))
            events = folder / "events.jsonl"
            rank = json.loads(events.read_text().splitlines()[0])["ranks"]["0"][0]
            os.kill(rank, signal.SIGSTOP)
            (tmp_path / "go").touch()

            assert await site.end_of("still") == Finished(JobId("still"), 1)
            assert "rank 0 was stopped by a signal" in events.read_text()

    asyncio.run(go())


@pytest.mark.usefixtures("impatient")
def test_a_rank_may_end_just_before_another_calls(tmp_path: Path) -> None:
    """Its agent, which was slow, hears of both at the same moment."""
    calls = f"""
import os, signal, socket, time
from pathlib import Path
from weft.wire.processes import start_time
name, go = Path({str(tmp_path)!r}, "pid"), Path({str(tmp_path)!r}, "go")
if os.environ["RANK"] == "1":
    name.with_suffix(".new").write_text(str(os.getpid()))
    name.with_suffix(".new").rename(name)
while not (name if os.environ["RANK"] == "0" else go).exists():
    time.sleep(0.01)
if os.environ["RANK"] == "1":
    raise SystemExit
os.kill(os.getppid(), signal.SIGSTOP)
go.touch()
while start_time(int(name.read_text())) is not None:
    time.sleep(0.01)
with socket.socket(socket.AF_UNIX) as line:
    line.connect(os.environ["WEFT_AGENT"])
    os.kill(os.getppid(), signal.SIGCONT)
    time.sleep(0.2)
"""

    async def go() -> None:
        async with listening_at(tmp_path) as here:
            await here.start(job("pair", *python(calls), gpus=2))
            end = await here.end_of("pair")
            assert isinstance(end, Finished), end

    asyncio.run(go())


def test_an_agent_that_stays_after_its_last_word_is_ended(tmp_path: Path) -> None:
    async def go() -> None:
        async with listening_at(tmp_path) as site:
            folder, agent = await site.run(job("over", "sleep", "1000"))
            os.kill(agent, signal.SIGSTOP)
            started = (folder / "events.jsonl").read_text().splitlines()[0]
            os.kill(json.loads(started)["ranks"]["0"][0], signal.SIGKILL)
            with (folder / "events.jsonl").open("a") as out:
                out.write('{"event":"ended","outcome":"finished","reason":""}\n')

            assert await site.end_of("over") == Finished(JobId("over"), 1)
            async with asyncio.timeout(LIMIT_S):
                while start_time(agent) is not None or any((tmp_path / "live").iterdir()):
                    await asyncio.sleep(0.02)

    asyncio.run(go())


@pytest.mark.usefixtures("impatient")
def test_an_agent_that_does_not_obey_a_stop_in_time_is_ended(tmp_path: Path) -> None:
    async def go() -> None:
        async with listening_at(tmp_path) as site:
            _, agent = await site.run(job("deaf", "sleep", "1000"))
            os.kill(agent, signal.SIGSTOP)
            await site.engine.stop(JobId("deaf"), 1, 0.1)

            assert await site.end_of("deaf") == Stopped(JobId("deaf"), 1)
            assert is_gone(agent)

    asyncio.run(go())


def test_an_agent_that_cannot_be_started_fails_its_attempt_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.core.errors import EngineError

    async def go() -> None:
        async with listening_at(tmp_path) as site:
            real = sys.executable
            for broken in (str(tmp_path), str(tmp_path / "plain"), "/no/such/python"):
                monkeypatch.setattr(sys, "executable", broken)
                with pytest.raises(EngineError, match="cannot be started"):
                    await site.start(job(f"no-agent-{len(broken)}", "true"))
            monkeypatch.setattr(sys, "executable", real)
            await site.works()
            assert site.engine.health.ok

    (tmp_path / "plain").touch()
    asyncio.run(go())


def test_a_job_that_had_ended_before_it_was_asked_to_stop_has_finished(tmp_path: Path) -> None:
    # The agent stands still while its rank ends and a stop is asked for: it sees both at once.
    async def go() -> None:
        async with listening_at(tmp_path) as site:
            _, agent = await site.run(until_told("done", tmp_path, f"echo $$ > {tmp_path}/pid"))
            await until_log_has(tmp_path / "pid", "\n")
            os.kill(agent, signal.SIGSTOP)
            (tmp_path / "go").touch()
            async with asyncio.timeout(LIMIT_S):
                while start_time(int((tmp_path / "pid").read_text())) is not None:
                    await asyncio.sleep(0.02)
            await site.engine.stop(JobId("done"), 1, 5.0)
            os.kill(agent, signal.SIGCONT)

            assert await site.end_of("done") == Finished(JobId("done"), 1)

    asyncio.run(go())


def test_a_job_whose_ranks_had_all_ended_well_is_done_though_its_agent_died(tmp_path: Path) -> None:
    async def go() -> None:
        async with listening_at(tmp_path) as site:
            await site.start(job("done", "true"))
            assert isinstance(await site.end_of("done"), Finished)

    asyncio.run(go())
    folder = folder_of(tmp_path, "done", 1)
    lines = (folder / "events.jsonl").read_text().splitlines()
    assert '"ended"' in lines[-1]
    (folder / "events.jsonl").write_text("\n".join(lines[:-1]) + "\n")

    async def again() -> None:
        async with listening_at(tmp_path, ("done",)) as site:
            assert await site.end_of("done") == Finished(JobId("done"), 1)

    asyncio.run(again())


def test_a_turn_that_fails_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with listening_at(tmp_path) as site:

            def broken(_run: object, now: float) -> None:
                raise RuntimeError("a bug of ours")

            with monkeypatch.context() as patch:
                patch.setattr(rounds, "_read_news", broken)
                await site.start(job("early", "true"))
                async with asyncio.timeout(LIMIT_S):
                    while site.engine.health.ok:
                        await asyncio.sleep(0.02)
                assert "a bug of ours" in site.engine.health.reason
            assert isinstance(await site.end_of("early"), Finished)
            async with asyncio.timeout(LIMIT_S):
                while not site.engine.health.ok:
                    await asyncio.sleep(0.02)

    asyncio.run(go())


def test_a_job_that_stops_itself_in_the_schedulers_name_does_not_keep_its_devices(
    tmp_path: Path,
) -> None:
    forged = """echo '{"grace_s": 0}' > "$WEFT_ATTEMPT_DIR/stop.json"; sleep 1000"""
    launch = Launch(("sh", "-c", forged), workdir="/", retries=0)

    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        driver = Driver(engine, MemoryStore(), policy="fifo")
        await driver.open()
        try:
            async with asyncio.timeout(LIMIT_S):
                await driver.submit(Job(JobId("forger"), launch=launch))
                await driver.submit(job("next", "true"))

                ended = await driver.ended(JobId("forger"))
                assert ended.record.outcome == "failed"
                assert ended.record.reason == "it was stopped, but not by the scheduler"
                assert (await driver.ended(JobId("next"))).record.outcome == "succeeded"
        finally:
            await driver.close()

    asyncio.run(go())


def test_an_attempt_whose_service_died_before_it_was_described_is_started_again(
    tmp_path: Path,
) -> None:
    # Folder and mark were made, its description was not: nothing ever ran.
    (tmp_path / "jobs" / "cut" / "1").mkdir(parents=True)
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "cut@1").touch()

    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        driver = Driver(engine, MemoryStore(), policy="fifo")
        await driver.open()
        try:
            async with asyncio.timeout(LIMIT_S):
                await driver.submit(job("cut", "true"))
                ended = await driver.ended(JobId("cut"))
                assert (ended.record.outcome, ended.record.attempt) == ("succeeded", 1)
        finally:
            await driver.close()

    asyncio.run(go())


def test_a_driver_whose_engine_is_not_well_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        driver = Driver(engine, MemoryStore(), policy="fifo")
        await driver.open()

        def broken(_run: object, now: float) -> None:
            raise OSError(errno.EIO, "the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr(rounds, "_read_news", broken)
            await driver.submit(job("one", "true"))
            async with asyncio.timeout(LIMIT_S):
                while not driver.trouble:
                    await asyncio.sleep(0.02)
        assert "the disk is gone" in driver.trouble
        async with asyncio.timeout(LIMIT_S):
            await driver.ended(JobId("one"))
        await driver.close()

    asyncio.run(go())


def test_a_job_that_kills_its_own_agents_fails_and_the_others_go_on(tmp_path: Path) -> None:
    launch = Launch(("sh", "-c", "kill -9 $PPID; sleep 60"), "/", retries=1, backoff_s=0.01)

    async def life() -> tuple[str, str, int, str]:
        engine = LocalEngine(tmp_path, slots=2, warm=False, cpu=True)
        driver = Driver(engine, MemoryStore(), policy="fifo")
        await driver.open()
        await driver.submit(Job(JobId("killer"), launch=launch))
        await driver.submit(Job(JobId("other"), launch=Launch(("true",), "/")))
        async with asyncio.timeout(LIMIT_S):
            killer = (await driver.ended(JobId("killer"))).record
            other = (await driver.ended(JobId("other"))).record
        await driver.close()
        return killer.outcome, killer.reason, killer.starts, other.outcome

    outcome, reason, starts, other = asyncio.run(life())

    assert (outcome, other) == ("failed", "succeeded")
    assert reason.startswith("its agent died")
    assert starts <= AGENTS_LOST + 2


@pytest.mark.skipif(not MAY_MAKE_GROUPS, reason="no control groups may be made here")
def test_the_last_agent_removes_the_control_group_when_no_service_is_there(tmp_path: Path) -> None:
    async def life() -> Path:
        async with listening_at(tmp_path) as site:
            await site.start(job("late", WAITS.format(tmp_path)))
            await site.until(lambda event: isinstance(event, Started))
            assert site.engine._place.groups is not None
            return site.engine._place.groups.path

    base = asyncio.run(life())
    assert base.exists()
    (tmp_path / "go").touch()

    until = time.monotonic() + LIMIT_S
    while base.exists():
        assert time.monotonic() < until, [*base.iterdir()]
        time.sleep(0.05)
