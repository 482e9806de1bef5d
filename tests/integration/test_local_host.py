"""CPUs and memory of real processes are what was asked for, or somebody says why not."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.test_local_details import job, printed, python, run, run_one, until_log_has
from tests.waiting import LIMIT_S
from weft.core.errors import EngineError, InvalidConfig
from weft.core.events.event import Event, Failed, Noticed
from weft.core.model.job import Allocation, JobId, Slice
from weft.engines.local import LocalEngine
from weft.wire.attempt import folder_of
from weft.wire.cgroups import find_base

CORES = len(os.sched_getaffinity(0))
SHOW = (
    "import os, json; print(json.dumps([sorted(os.sched_getaffinity(0)),"
    "os.environ['OMP_NUM_THREADS'], os.environ['WEFT_CPUS']]))"
)
needs_two = pytest.mark.skipif(CORES < 2, reason="one core is all there is")


@needs_two
def test_processes_of_jobs_that_ask_for_different_cpus_differ(tmp_path: Path) -> None:
    small = run(tmp_path / "s", job("small", *python(SHOW), cpus=0.5), slots=1)
    run(tmp_path / "l", job("large", *python(SHOW), cpus=float(CORES)), slots=2)

    affinity, threads, cpus = json.loads(printed(tmp_path / "s", "small"))
    assert (len(affinity), threads, cpus) == (1, "1", "0.5")
    every, threads, cpus = json.loads(printed(tmp_path / "l", "large"))
    assert (len(every), threads, cpus) == (CORES, str(CORES), str(CORES))
    texts = [event.text for event in small if isinstance(event, Noticed)]
    base = find_base("weft-looking")
    limited = base is not None and base.limits_cpu
    assert texts == ([] if limited else ["0.5 CPUs are rounded up to 1: no CPU cgroup here"])


@needs_two
def test_jobs_beside_each_other_are_given_different_cores(tmp_path: Path) -> None:
    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=2, warm=False, cpu=True)
        await engine.adopt(())
        node = (await engine.nodes())[0]
        show = python(f"{SHOW}\nimport time; time.sleep(1000)".replace("]))", "]), flush=True)"))
        for name in ("a", "b"):  # both on device 0: its own core goes to the first
            on = Allocation((Slice(node.id, (0,)),))
            await engine.start(job(name, *show, cpus=1.0), on, 1)
        for name in ("a", "b"):
            await until_log_has(folder_of(tmp_path, name, 1) / "rank-0.log", "]")
        for name in ("a", "b"):
            await engine.stop(JobId(name), 1, 0.0)
        await gone(engine, 2)
        await engine.close()

    asyncio.run(go())
    (a, *_), (b, *_) = (json.loads(printed(tmp_path, name)) for name in ("a", "b"))
    assert len(a) == len(b) == 1
    assert a != b


async def gone(engine: LocalEngine, count: int) -> list[Event]:
    from weft.core.events.event import Finished, StartFailed, Stopped

    events: list[Event] = []
    async with asyncio.timeout(LIMIT_S):
        async for event in engine.events():
            events.append(event)
            count -= isinstance(event, (Failed, Finished, Stopped, StartFailed))
            if count == 0:
                return events
    raise AssertionError("not all ended")


@needs_two
def test_a_job_that_could_not_be_started_leaves_its_cores(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir(mode=0o700)
    (tmp_path / "jobs" / "bad").touch()  # where its folder should be

    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=2, warm=False, cpu=True)
        await engine.adopt(())
        first = Allocation((Slice((await engine.nodes())[0].id, (0,)),))
        with pytest.raises(EngineError, match="cannot be started"):
            await engine.start(job("bad", "true", cpus=1.0), first, 1)
        await run_one(engine, job("good", *python(SHOW), cpus=1.0))
        await engine.close()

    asyncio.run(go())
    run(tmp_path / "alone", job("good", *python(SHOW), cpus=1.0))
    assert printed(tmp_path, "good") == printed(tmp_path / "alone", "good")


@needs_two
def test_a_running_job_is_moved_to_other_cores_when_its_part_of_the_host_changes(
    tmp_path: Path,
) -> None:
    watching = (
        "import os, time, subprocess\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "while True:\n"
        "    mine, its = (len(os.sched_getaffinity(pid)) for pid in (0, child.pid))\n"
        "    print(mine, its, flush=True)\n"
        "    time.sleep(0.05)\n"
    )

    async def go() -> None:
        engine = LocalEngine(tmp_path, slots=2, warm=False, cpu=True)
        await engine.adopt(())
        node = (await engine.nodes())[0]
        half = Slice(node.id, (0,), node.cpus / 2, node.mem_gb / 2)
        task = asyncio.create_task(run_one(engine, job("moved", *python(watching))))
        log = folder_of(tmp_path, "moved", 1) / "rank-0.log"
        await until_log_has(log, f"{CORES // 2} {CORES // 2}")

        whole = Slice(node.id, half.gpus, node.cpus, half.mem_gb)
        await engine.adjust(JobId("moved"), 1, Allocation((whole,)))

        await until_log_has(log, f"{CORES} {CORES}")
        await engine.stop(JobId("moved"), 1, 0.0)
        await task
        await engine.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("more", "words"), [({"cpus": 1e6}, "cpus is 1e.06"), ({"mem_gb": 1e6}, "mem_gb is 1e.06")]
)
def test_a_job_larger_than_the_machine_is_refused_before_it_starts(
    tmp_path: Path, more: dict[str, float], words: str
) -> None:
    engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)

    with pytest.raises(InvalidConfig, match=words):
        engine.check(replace(job("huge", "true"), **more))  # type: ignore[arg-type]


def test_memory_of_processes_that_a_rank_started_counts(tmp_path: Path) -> None:
    hungry = "x = b'x' * 200_000_000; import time; time.sleep(60)"
    # Each of the two stays below the limit of one process; together they are above the job's.
    parent = (
        "import subprocess, sys\n"
        "two = [subprocess.Popen([sys.executable, '-c', sys.argv[1]]) for _ in 'ab']\n"
        "sys.exit(max(one.wait() for one in two))\n"
    )

    done = run(tmp_path, job("greedy", *python(parent, hungry), mem_gb=0.35))

    failed = done[-1]
    assert isinstance(failed, Failed)
    assert "GB of memory" in failed.reason
