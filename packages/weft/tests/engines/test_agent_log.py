"""What an agent wrote is told once, whoever reads it, and read again after trouble."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from weft.base.errors import WireError
from weft.core.events.event import Event, Saved
from weft.core.model.job import JobId
from weft.engines.attempts import rounds
from weft.engines.attempts.agent_log import AgentLog, read_line
from weft.engines.attempts.rounds import BackgroundTasks
from weft.engines.fleet.port import AttemptPart, Gang
from weft.engines.fleet.requests import ask_to_stop
from weft.wire.attempt import EVENTS, STOP

JOB = JobId("job")


def read(line: dict[str, Any]) -> list[Event]:
    return read_line(JOB, 1, line)


def saved(*steps: int) -> list[Event]:
    return [Saved(JOB, 1, step) for step in steps]


def write(folder: Path, *steps: int) -> None:
    with (folder / EVENTS).open("a") as log:
        log.writelines(json.dumps({"event": "saved", "step": step}) + "\n" for step in steps)


def test_a_log_that_was_read_before_tells_only_the_last_of_its_checkpoints(tmp_path: Path) -> None:
    fresh, again = AgentLog(tmp_path), AgentLog(tmp_path, again=True)
    assert again.events(read) == []
    write(tmp_path, 1, 2)

    assert fresh.events(read) == saved(1, 2)
    assert again.events(read) == saved(2)

    write(tmp_path, 3, 4)
    assert fresh.events(read) == again.events(read) == saved(3, 4)


@pytest.mark.parametrize(("again", "numbers"), [(False, (1, 2)), (True, (2,))])
def test_what_could_not_be_taken_in_is_read_again(
    tmp_path: Path, again: bool, numbers: tuple[int, ...]
) -> None:
    log = AgentLog(tmp_path, again)
    write(tmp_path, 1, 2)

    def fail(line: dict[str, Any]) -> list[Event]:
        raise OSError(f"too many open files for {line}")

    with pytest.raises(OSError, match="too many open files"):
        log.events(fail)

    assert log.events(read) == saved(*numbers)


@pytest.mark.parametrize("spoilt", [{}, {"grace_s": []}, {"grace_s": "soon"}])
def test_a_request_to_stop_that_a_job_has_spoilt_is_no_accident(
    tmp_path: Path, spoilt: dict[str, Any]
) -> None:
    (tmp_path / STOP).write_text(json.dumps(spoilt))
    gang = Gang(JOB, 1, "job", "", (AttemptPart("n1", (0,), 1.0, 1.0, tmp_path),))  # type: ignore[arg-type]

    with pytest.raises(WireError, match="is not ours"):
        ask_to_stop(gang, 5.0)


def test_a_round_that_fails_is_told_and_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "AGAIN_S", 0.0)
    turns, troubles = iter([True, False, False]), []

    async def turn(tasks: BackgroundTasks, over: asyncio.Event) -> None:
        await asyncio.sleep(0)
        troubles.append([*tasks.troubles.values()])
        if len(troubles) == 3:
            over.set()
        if next(turns, False):
            raise OSError("the disk is full")

    async def run() -> None:
        tasks, over = BackgroundTasks(), asyncio.Event()
        tasks.begin("listen", lambda: turn(tasks, over))
        await asyncio.wait_for(over.wait(), 60.0)
        await tasks.close()

    asyncio.run(run())

    assert troubles[:3] == [[], ["the engine cannot listen: the disk is full"], []]
