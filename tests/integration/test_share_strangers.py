"""Real processes that say nothing of themselves share a slot: memory, trial, promise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import until
from weft.app.serve.live import Live, Settings
from weft.core.events.event import Decided, Failed, Observed, Started
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch

ENGINE = "local:cpu=true,slots=1,slot_gb=4,warm=false,pin=false"
# A stranger's script: it holds memory, and counts its steps with a progress bar.
SCRIPT = """
import os, sys, time
from tqdm import tqdm
steps, gigabytes, wants = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
hold = bytearray(int(gigabytes * 1e9))
limit = float(os.environ.get("WEFT_GPU_MEM_GB") or "inf")
if wants > limit:
    raise SystemExit(f"torch.OutOfMemoryError: CUDA out of memory. {wants} of {limit} GB")
for _ in tqdm(range(steps), mininterval=0.05):
    time.sleep(0.02)
"""


def job(name: str, folder: Path, steps: int, wants_gb: float = 0.1, **more: object) -> Job:
    command = (sys.executable, f"{name}.py", str(steps), "0.05", str(wants_gb))
    (folder / f"{name}.py").write_text(SCRIPT)
    return Job(
        JobId(name),
        preemptible=False,
        launch=Launch(command, str(folder), name=name, retries=0),
        **more,  # type: ignore[arg-type] # fields of a job, whichever a test names
    )


def run(tmp_path: Path, test: Callable[[Live], object]) -> None:
    async def main() -> None:
        settings = Settings(
            ENGINE, tmp_path / "state", decide_in="service", default=("weft:strangers=true",)
        )
        live = Live(settings)
        await live.open()
        try:
            await test(live)  # type: ignore[misc] # a coroutine
        finally:
            await live.close()

    asyncio.run(main())


def shares(live: Live) -> dict[str, float]:
    table = live.driver.scheduler.state.table
    rows = zip(table.jobs, table.allocations, strict=True)
    return {job.id: round(on.sharing.share, 2) for job, on in rows if on is not None}


def happened(live: Live, kind: type) -> list[object]:
    return [event for _, _, event in live.store.since(0) if isinstance(event, kind)]


def test_newcomers_join_and_all_of_them_end(tmp_path: Path) -> None:
    async def test(live: Live) -> None:
        assert live.policy.text == "weft:strangers=true"
        for name in "abc":
            await live.driver.submit(job(name, tmp_path, 200))
        await until(lambda: len(happened(live, Started)) == 3)
        assert shares(live) == dict.fromkeys("abc", 0.33)
        await until(lambda: len(happened(live, Observed)) >= 3)
        for name in "abc":
            status = await live.driver.ended(JobId(name))
            assert status.state == "succeeded"

    run(tmp_path, test)


def test_who_runs_out_of_memory_beside_others_is_restarted_alone_and_nobody_sees_a_failure(
    tmp_path: Path,
) -> None:
    async def test(live: Live) -> None:
        await live.driver.submit(job("small", tmp_path, 150))
        await until(lambda: len(happened(live, Started)) == 1)
        await live.driver.submit(job("large", tmp_path, 20, wants_gb=3.5))

        status = await live.driver.ended(JobId("large"))

        assert status.state == "succeeded"
        (failed,) = happened(live, Failed)
        assert isinstance(failed, Failed)
        assert failed.out_of_memory
        assert failed.lost
        assert failed.retry
        assert status.record.failures == 0
        assert (await live.driver.ended(JobId("small"))).state == "succeeded"

    run(tmp_path, test)


def test_nothing_stays_frozen_when_the_service_closes(tmp_path: Path) -> None:
    async def test(live: Live) -> None:
        for name in "ab":
            await live.driver.submit(job(name, tmp_path, 400))
        await until(lambda: len(happened(live, Started)) == 2)
        await live.driver.engine.freeze(JobId("a"), 1, by="share")
        live.sharing._frozen.add((JobId("a"), 1))

        await live.sharing.close()

        assert (await live.driver.ended(JobId("a"))).state == "succeeded"

    run(tmp_path, test)


# Its steps take as many times as long as there are others that stepped in the last moments.
SLOWED = """
import sys, time
from pathlib import Path
from tqdm import tqdm
folder, own = Path(sys.argv[2]), Path(sys.argv[2], sys.argv[3])
for _ in tqdm(range(int(sys.argv[1])), mininterval=0.05):
    own.touch()
    now = time.time()
    beside = sum(now - one.stat().st_mtime < 0.15 for one in folder.iterdir() if one != own)
    time.sleep(0.02 * (1 + beside))
"""


@pytest.mark.slow
def test_a_promise_is_kept_by_freezing_the_neighbour_for_parts_of_a_second(tmp_path: Path) -> None:
    (tmp_path / "beats").mkdir()
    (tmp_path / "slowed.py").write_text(SLOWED)

    def slowed(name: str, steps: int, slowdown: float | None = None) -> Job:
        command = (sys.executable, "slowed.py", str(steps), str(tmp_path / "beats"), name)
        launch = Launch(command, str(tmp_path), name=name, retries=0)
        return Job(JobId(name), preemptible=False, launch=launch, slowdown=slowdown)

    async def test(live: Live) -> None:
        await live.driver.submit(slowed("firm", 1500, slowdown=1.3))
        await asyncio.sleep(9.0)
        await live.driver.submit(slowed("loose", 100_000))
        modes = set()

        def is_guarded() -> bool:
            standing = live.sharing.resident_state(JobId("firm"))
            modes.add(standing.mode if standing else "")
            return "guarded" in modes

        await until(is_guarded)
        began = live.driver.engine.measured(JobId("firm"), 1)
        await asyncio.sleep(12.0)
        ended = live.driver.engine.measured(JobId("firm"), 1)
        loose = live.driver.engine.measured(JobId("loose"), 1)

        assert began.steps is not None
        assert ended.steps is not None
        kept = (ended.steps - began.steps) / (ended.at - began.at)
        alone = live.sharing._devices[next(iter(live.sharing._devices))].speeds.alone
        assert kept / alone[JobId("firm")] > 1 / 1.6  # it would be 1/2; a loaded machine is noisy
        assert (loose.steps or 0.0) > 0.0  # slowed, not stopped
        paces = [
            event
            for event in happened(live, Observed)
            if isinstance(event, Observed) and event.pace
        ]
        assert {pace.job for pace in paces} >= {"firm"}
        await live.driver.cancel(JobId("firm"))
        await live.driver.cancel(JobId("loose"))

    run(tmp_path, test)


FAULTY = """
import pathlib, sys, time
from tqdm import tqdm
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
own, fault = folder / f"{name}-began", folder / "fault"
first = not own.exists()
own.touch()
for step in tqdm(range(100), mininterval=0.05):
    time.sleep(0.02)
    if first and name == "culprit" and step > 50 and (folder / "victim-began").exists():
        fault.touch()
        print("RuntimeError: CUDA error: an illegal memory access was encountered")
        raise SystemExit("Compile with TORCH_USE_CUDA_DSA to enable device-side assertions.")
    if first and name == "victim" and fault.exists():
        raise SystemExit("RuntimeError: CUDA error: MPS client was terminated by the server")
while first and name == "victim" and not fault.exists():
    time.sleep(0.02)
if first:
    raise SystemExit("RuntimeError: CUDA error: MPS client was terminated by the server")
"""


def test_a_fault_that_ends_all_clients_of_a_gpu_starts_them_again_the_culprit_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)

    def faulty(name: str) -> Job:
        command = (sys.executable, "faulty.py", name, str(tmp_path))
        launch = Launch(command, str(tmp_path), name=name, retries=0)
        return Job(JobId(name), preemptible=False, launch=launch)

    async def test(live: Live) -> None:
        await live.driver.submit(faulty("victim"))
        await until(lambda: (tmp_path / "victim-began").exists())
        await live.driver.submit(faulty("culprit"))
        ended = [await live.driver.ended(JobId(name)) for name in ("victim", "culprit")]

        assert [status.state for status in ended] == ["succeeded", "succeeded"]
        assert [status.record.failures for status in ended] == [0, 0]
        failed = {event.job: event for event in happened(live, Failed) if isinstance(event, Failed)}
        assert {job: failure.gpu_fault for job, failure in failed.items()} == {
            "victim": False,
            "culprit": True,
        }
        assert "an illegal memory access" in failed[JobId("culprit")].reason
        alone = [
            to.sharing.share
            for event in happened(live, Decided)
            if isinstance(event, Decided)
            and (to := event.changes.get(JobId("culprit"))) is not None
        ]
        assert alone[0] < 1.0
        assert alone[-1] == 1.0

    run(tmp_path, test)
