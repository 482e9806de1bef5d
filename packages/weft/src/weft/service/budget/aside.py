"""Work that a request asks for and whose cost is not known beforehand: done aside, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from weft.runtime.aside.messages import Report
from weft.runtime.aside.process import AsideProcess
from weft.service.http.replies import HttpProblem

T = TypeVar("T")

MOST_WAITING = 64
SAMPLE_S = 20.0  # for one trial of a search; one that needs more is over


class Aside:
    """One piece of work after the other, in a process with limits, while the loop goes on.

    `cpu_s` and `memory_gb` are what each may take. With `polite` others go first.
    """

    def __init__(self, name: str, *, cpu_s: float, memory_gb: float, polite: bool = False) -> None:
        self._process = AsideProcess(cpu_s, memory_gb, polite)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting = 0

    @property
    def pid(self) -> int | None:
        """The process that works; None before it is needed."""
        return self._process.pid

    async def do(
        self, prepare: Callable[[], Callable[[Report], T]], report: Report = lambda _: None
    ) -> T:
        """The result of the work that `prepare` names, in a thread beside the loop.

        Raises WeftError as the work does, TookTooMuch if it was ended.
        """
        if self._waiting >= MOST_WAITING:
            what = f"{self._waiting} such questions wait already"
            raise HttpProblem(429, what, "ask again later", retry_s=10.0)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._thread, lambda: self._process.run(prepare(), report)
            )
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the process, and let go of the thread."""
        self._process.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


class WorkProcesses:
    """The processes of a service: for texts, questions, simulations, samplers and the judge."""

    def __init__(self) -> None:
        self.parse = Aside("parse", cpu_s=2.0, memory_gb=1.0)
        self.answer = Aside("answer", cpu_s=40.0, memory_gb=4.0)
        self.simulate = Aside("simulate", cpu_s=120.0, memory_gb=4.0, polite=True)
        self.forecast = Aside("forecast", cpu_s=40.0, memory_gb=4.0)  # nothing waits behind it
        self.sample = Aside("sample", cpu_s=SAMPLE_S, memory_gb=4.0, polite=True)
        self.judge = Aside("judge", cpu_s=1800.0, memory_gb=4.0)  # a month's log, at low priority

    def close(self) -> None:
        for aside in vars(self).values():
            aside.close()
