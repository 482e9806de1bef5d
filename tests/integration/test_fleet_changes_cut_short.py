"""A service dies between any two writes of a live resize: the next one brings it to its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft.engines.fleet import resizing
from weft.engines.fleet.processes import ProcessEngine, ProcessManager
from weft.testing.engine_resize import TRAIN, begin_training, end_change_after_restart
from weft.testing.engine_subject import session, shell_job, shell_subject


class Killed(BaseException):
    """The service is gone: nothing catches this."""


class Death:
    """Lets that many writes through, and none after them."""

    def __init__(self, writes: int) -> None:
        self._left, self.came = writes, threading.Event()

    def before(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*given: Any, **more: Any) -> Any:
            if self.came.is_set() or self._left == 0:
                self.came.set()
                raise Killed
            self._left -= 1
            return write(*given, **more)

        return guarded


# In order: a folder for the new rank, the roster, where to meet, the request to the manager, the
# groups for each of two parts, the terms for each, and the roster again.
@pytest.mark.slow
@pytest.mark.parametrize("writes", range(9))
def test_a_change_is_brought_to_its_end_wherever_the_service_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    subject = shell_subject(lambda: ProcessEngine(tmp_path / "state", count=2, slots=2))
    death = Death(writes)

    async def first() -> Any:
        async with session(subject) as it:
            job = await begin_training(it, shell_job("survives", 1, TRAIN), await it.over(1))
            with monkeypatch.context() as patched:
                for name in ("make_part", "save_roster", "write_whole"):
                    patched.setattr(resizing, name, death.before(vars(resizing)[name]))
                patched.setattr(ProcessManager, "submit", death.before(ProcessManager.submit))
                try:
                    await it.engine.resize(job, await it.over(1, 1), 1, 1)
                    await it.becomes(death.came.is_set, f"write {writes}")
                except Killed:
                    pass
                await it.engine.close()
            return job

    async def second(job: Any) -> None:
        async with session(subject, frozenset({(job.id, 1)})) as it:
            await it.engine.resize(job, await it.over(1, 1), 1, 1)
            await end_change_after_restart(it, job, await it.over(1))

    asyncio.run(second(asyncio.run(first())))
