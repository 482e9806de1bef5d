"""What the local engine's agents promise beyond the contract of all engines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from weft.base.errors import Fenced
from weft.base.fence import owner
from weft.core.events.event import (
    Event,
    Failed,
    Finished,
    Measured,
    Noticed,
    Reported,
    Saved,
    Started,
    Stopped,
)
from weft.core.model.job import Allocation, Batch, Demand, Discipline, Job, JobId, Sharing, Slice
from weft.core.model.launch import Launch
from weft.engines.local import LocalEngine
from weft.node.guard.locks import hold_all
from weft.run_terms import Processes
from weft.wire.attempt import AttemptSpec, folder_of
from weft.wire.processes import find_tagged, start_time


def is_gone(pid: int) -> bool:
    """Whether a process that was killed has ended; the kernel takes its time on a busy machine."""
    deadline = time.monotonic() + LIMIT_S
    while start_time(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    return start_time(pid) is None


def each(command: tuple[str, ...]) -> Launch:
    return Launch(command, workdir="/", processes=Processes.PER_GPU)


def job(name: str, *command: str, gpus: int = 1, **more: object) -> Job:
    return Job(JobId(name), demand=Demand(gpus), launch=each(command), **more)  # type: ignore[arg-type]


def python(text: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text, *arguments)


async def run_one(
    engine: LocalEngine, submitted: Job, sharing: Sharing | None = None, batch: Batch | None = None
) -> list[Event]:
    """Start a job and gather what is told of it until it ends."""
    node = (await engine.nodes())[0]
    on = Allocation(
        (Slice(node.id, tuple(range(submitted.demand.gpus))),), sharing or Sharing(), batch
    )
    await engine.start(submitted, on, 1)
    events: list[Event] = []
    async with asyncio.timeout(LIMIT_S):
        async for event in engine.events():
            events.append(event)
            if isinstance(event, (Finished, Failed, Stopped)):
                return events
    raise AssertionError("no end was told")


def run(state: Path, submitted: Job, slots: int = 2, **more: object) -> list[Event]:
    async def go() -> list[Event]:
        engine = LocalEngine(state, slots=slots, warm=False, cpu=True, **more)  # type: ignore[arg-type]
        await engine.adopt(())
        try:
            return await run_one(engine, submitted)
        finally:
            await engine.close()

    return asyncio.run(go())


def printed(state: Path, name: str, rank: int = 0) -> str:
    return (folder_of(state, name, 1) / f"rank-{rank}.log").read_text()


def test_ranks_know_who_they_are_and_where(tmp_path: Path) -> None:
    show = "import os,json; print(json.dumps([dict(os.environ), sorted(os.sched_getaffinity(0))]))"

    run(tmp_path, job("who", *python(show), gpus=2))

    env, cores = json.loads(printed(tmp_path, "who", 1))
    assert env["WEFT_JOB"] == "who"
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("1", "2", "1")
    assert env["WEFT_DEVICES"] == "0,1"
    assert env["WEFT_KIND"] == "cpu"
    assert env["MASTER_ADDR"] == "127.0.0.1"
    assert int(env["MASTER_PORT"]) > 0
    assert len(cores) == max(1, len(os.sched_getaffinity(0)) // 2)
    assert owner(env["WEFT_CHECKPOINTS"]) == 1


@pytest.mark.parametrize("name", ["../../escape", "a b;$(touch x)", "..", "n\nl", "é" * 100])
def test_no_name_of_a_job_does_harm(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"

    events = run(state, job(name, "echo", "$(id)", "; rm -rf /", "`x`"))

    assert events[-1] == Finished(JobId(name), 1)
    assert printed(state, name) == "$(id) ; rm -rf / `x`\n"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert len(list((state / "jobs").iterdir())) == 1


def test_output_beyond_the_limit_moves_aside(tmp_path: Path) -> None:
    from weft.node.ranks.logs import RankLog

    log = RankLog(tmp_path / "rank-0.log", limit=1000)
    for i in range(100):
        log.write(b"line %05d of many\n" % i)
    log.close()

    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["rank-0.log", "rank-0.log.1"]
    assert all((tmp_path / name).stat().st_size <= 1000 for name in files)
    assert log.last_line() == "line 00099 of many"
    assert (tmp_path / "rank-0.log").read_text().endswith("line 00099 of many\n")


def test_a_job_that_takes_too_much_memory_is_ended_and_told_so(tmp_path: Path) -> None:
    greedy = "x = []\nwhile True: x.append(bytearray(10_000_000))"

    events = run(tmp_path, job("greedy", *python(greedy), mem_gb=0.2))

    failed = events[-1]
    assert isinstance(failed, Failed)
    assert "MemoryError" in failed.reason or "GB of memory" in failed.reason


def test_nothing_that_a_job_started_is_left_behind(tmp_path: Path) -> None:
    leaver = "setsid sleep 1000 & sleep 1000 & echo $!"

    events = run(tmp_path, job("leaver", "sh", "-c", leaver))

    assert events[-1] == Finished(JobId("leaver"), 1)
    assert is_gone(int(printed(tmp_path, "leaver")))
    assert list(find_tagged("WEFT_ATTEMPT_DIR", str(folder_of(tmp_path, "leaver", 1)))) == []


def test_when_one_rank_fails_the_others_are_ended(tmp_path: Path) -> None:
    there = tmp_path / "there"
    script = (
        f"if [ $RANK = 0 ]; then echo $$; touch {there}; exec sleep 1000; fi\n"
        f"until [ -e {there} ]; do sleep 0.02; done; echo why >&2; exit 9"
    )

    events = run(tmp_path / "s", job("gang", "sh", "-c", script, gpus=2))

    assert isinstance(events[-1], Failed)
    assert events[-1].reason.startswith("rank 1 ended with exit code 9")
    assert is_gone(int(printed(tmp_path / "s", "gang")))


def test_ends_are_seen_where_the_kernel_does_not_tell_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        "import os, errno\ndef no(*_): raise OSError(errno.ENOSYS, 'no')\nos.pidfd_open = no\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    events = run(tmp_path / "s", job("blind", "sh", "-c", "exit 4", gpus=2))

    assert isinstance(events[-1], Failed)
    assert "exit code 4" in events[-1].reason


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    events = run(tmp_path, job("nothing", "no-such-program"))

    assert isinstance(events[-1], Failed)
    assert "cannot run 'no-such-program'" in events[-1].reason


TRAINER = """
import os, time
from weft.base.client import AgentConnection
from weft.base.messages import Hello, Report, Saved, Notice, Leaving, Stop, Adjust
env = os.environ
hello = Hello(env["WEFT_JOB"], int(env["WEFT_ATTEMPT"]), 0, os.getpid())
client = AgentConnection(env["WEFT_AGENT"], hello)
client.send(Report({"step_s": 0.5, "loss": float("nan")}))
client.send(Saved(7, 1, "/x"))
client.send(Notice("warning", "a checkpoint is damaged"))
while True:
    for said in client.poll():
        print(said, flush=True)
        if isinstance(said, Stop):
            client.send(Leaving("stopped"))
            client.close()
            os._exit(0)
    time.sleep(0.01)
"""


def test_what_a_trainer_tells_becomes_events_and_requests_reach_it(tmp_path: Path) -> None:
    async def go() -> list[Event]:
        engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        await engine.adopt(())
        task = asyncio.create_task(
            run_one(engine, job("trainer", *python(TRAINER)), batch=Batch(32, 2))
        )
        log = folder_of(tmp_path, "trainer", 1) / "rank-0.log"
        try:
            await until_log_has(log, "per_gpu=32, accumulate=2")
            node = (await engine.nodes())[0]
            to = Allocation((Slice(node.id, (0,)),), batch=Batch(64, 1))
            await engine.adjust(JobId("trainer"), 1, to)
            await until_log_has(log, "per_gpu=64, accumulate=1")
            await engine.stop(JobId("trainer"), 1, 20.0)
            return await task
        finally:
            await engine.close()

    me = (JobId("trainer"), 1)
    events = asyncio.run(go())

    events = [event for event in events if not isinstance(event, Measured)]  # these come in time
    kinds = [Started, Reported, Noticed, Saved, Noticed, Stopped]
    assert [type(event) for event in events] == kinds
    assert isinstance(events[1], Reported)
    assert events[1].report.step_s == 0.5
    assert isinstance(events[2], Noticed)
    assert "loss" in events[2].text
    assert events[3:5] == [Saved(*me, 7), Noticed(*me, "warning", "a checkpoint is damaged")]


async def until_log_has(log: Path, text: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not log.exists() or text not in log.read_text():
            await asyncio.sleep(0.02)


def test_a_coordinator_that_dies_is_started_again_and_ended_with_the_last_job(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        await engine.adopt(())
        sharing_job = job(
            "shared", "sh", "-c", "echo $WEFT_COORDINATOR $WEFT_WEIGHT; exec sleep 1000"
        )
        sharing = Sharing(share=0.5, discipline=Discipline.WORK_CONSERVING)
        task = asyncio.create_task(run_one(engine, sharing_job, sharing))
        await until_log_has(folder_of(tmp_path, "shared", 1) / "rank-0.log", "0.5")
        path, _ = printed(tmp_path, "shared").split()
        async with asyncio.timeout(LIMIT_S):
            while not Path(path).exists():
                await asyncio.sleep(0.02)
            first = engine._tokens.pid("work-conserving")
            assert first is not None

            os.kill(first, signal.SIGKILL)

            while (second := engine._tokens.pid("work-conserving")) in (None, first):
                await asyncio.sleep(0.02)
        await engine.stop(sharing_job.id, 1, 5.0)
        await task
        await engine.close()
        assert second is not None
        async with asyncio.timeout(LIMIT_S):
            while start_time(second) is not None:
                await asyncio.sleep(0.02)

    asyncio.run(go())


def test_an_attempt_of_nobody_is_ended_on_adoption(tmp_path: Path) -> None:
    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        await engine.adopt(())
        node = (await engine.nodes())[0]
        orphan = job("orphan", "sleep", "1000")
        await engine.start(orphan, Allocation((Slice(node.id, (0,)),)), 1)
        async with asyncio.timeout(LIMIT_S):
            async for event in engine.events():
                assert event == Started(orphan.id, 1)
                break
        await engine.close()
        folder = folder_of(tmp_path, "orphan", 1)
        agent = json.loads((folder / "claim.json").read_text())["pid"]

        again = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        assert await again.adopt(()) == set()

        async with asyncio.timeout(LIMIT_S):
            while start_time(agent) is not None:
                await asyncio.sleep(0.02)
        await again.close()
        assert '"outcome":"stopped"' in (folder / "events.jsonl").read_text()

    asyncio.run(go())


def test_of_two_agents_only_one_runs_the_attempt(tmp_path: Path) -> None:
    import subprocess

    folder = tmp_path / "attempt"
    folder.mkdir()
    spec = AttemptSpec(
        "twice", 1, ("sh", "-c", f"echo x >> {tmp_path}/ran; sleep 0.2"), "/",
        str(tmp_path / "ckpt"), (0,), lock=str(tmp_path / "lock"),
    )  # fmt: skip
    spec.write(folder)
    command = [sys.executable, "-m", "weft.node.agent", str(folder)]

    agents = [subprocess.Popen(command) for _ in range(3)]
    codes = sorted(agent.wait(timeout=LIMIT_S) for agent in agents)

    assert codes == [0, 3, 3]
    assert (tmp_path / "ran").read_text() == "x\n"


def test_a_warm_server_runs_scripts_without_starting_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, os, json\n"
        "assert __name__ == '__main__'\n"
        "print(json.dumps([sys.argv, 'json' in sys.modules, os.getcwd(), os.environ['EXTRA']]))\n"
        "sys.exit('told you' if sys.argv[1] == 'fail' else 0)\n"
    )

    async def go() -> None:
        engine = LocalEngine(tmp_path / "s", slots=2, warm=True, cpu=True, preload="json")
        await engine.adopt(())
        async with asyncio.timeout(LIMIT_S):
            while not engine.is_warm:
                await asyncio.sleep(0.02)
        how = Launch((sys.executable, str(script), "a b"), workdir="/", env={"EXTRA": "1"})
        good = await run_one(engine, Job(JobId("good"), launch=how))
        how = Launch((sys.executable, str(script), "fail"), workdir="/", env={"EXTRA": "1"})
        bad = await run_one(engine, Job(JobId("bad"), launch=how))
        await engine.close()

        assert good[-1] == Finished(JobId("good"), 1)
        assert isinstance(bad[-1], Failed)
        assert bad[-1].reason == "rank 0 ended with exit code 1: told you"
        events = (folder_of(tmp_path / "s", "good", 1) / "events.jsonl").read_text()
        assert '"warm":true' in events

    asyncio.run(go())
    shown = json.loads(printed(tmp_path / "s", "good"))
    assert shown == [[str(script), "a b"], True, "/", "1"]


def test_a_new_job_may_go_on_with_another_ones_checkpoints_once_that_has_left(
    tmp_path: Path,
) -> None:
    def spec(name: str, attempt: int) -> AttemptSpec:
        return AttemptSpec(name, attempt, ("true",), "/", str(tmp_path / "ckpt"), (0,))

    first = hold_all(spec("first", 7))
    with pytest.raises(OSError, match="another job with checkpoints"):
        hold_all(spec("second", 1), wait_s=0.1)
    for handle in first:
        os.close(handle)

    for handle in hold_all(spec("second", 1)):
        os.close(handle)

    assert owner(tmp_path / "ckpt") == 1
    with pytest.raises(Fenced):
        hold_all(spec("second", 0))


def test_the_services_own_variables_are_not_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_TOKEN", "secret")
    monkeypatch.setenv("NCCL_DEBUG", "yes")

    run(tmp_path, job("nosy", "sh", "-c", "echo $NCCL_DEBUG [$WEFT_TOKEN]"))

    assert printed(tmp_path, "nosy") == "yes []\n"


@pytest.mark.parametrize("warm", [False, True])
def test_secrets_of_the_services_environment_do_not_reach_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("WEFT_TOKEN", "hush")
    monkeypatch.setenv("DATA_ROOT", "/data")
    script = tmp_path / "show.py"
    # Its own variables, and those of every process it descends from that is ours.
    script.write_text(
        "import os, json\n"
        "from pathlib import Path\n"
        "agent = Path(f'/proc/{os.getppid()}/environ').read_bytes().decode()\n"
        "print(json.dumps([dict(os.environ), agent]))\n"
    )
    engine: dict[str, object] = {"warm": warm, "preload": "json", "pass_env": ("DATA_ROOT",)}

    async def go() -> None:
        made = LocalEngine(tmp_path, slots=1, cpu=True, **engine)  # type: ignore[arg-type]
        await made.adopt(())
        try:
            async with asyncio.timeout(LIMIT_S):
                while warm and not made.is_warm:
                    await asyncio.sleep(0.02)
            await run_one(made, job("a", sys.executable, str(script)))
        finally:
            await made.close()

    asyncio.run(go())

    variables, agent = json.loads((folder_of(tmp_path, "a", 1) / "rank-0.log").read_text())
    assert "hush" not in json.dumps(variables) + agent
    assert variables["DATA_ROOT"] == "/data"
    assert variables["PATH"] == os.environ["PATH"]
