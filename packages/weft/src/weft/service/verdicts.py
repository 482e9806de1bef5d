"""The judge's verdict on this service: made aside at set times, and kept in the state folder."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any

from weft.app.insight.verdict import judge_log
from weft.app.serve.live import Settings
from weft.app.serve.private_file import read_private, write_private
from weft.core.errors import WeftError
from weft.runtime.loop.background import end_task
from weft.service.budget.aside import Aside
from weft.service.http.replies import HttpProblem

log = logging.getLogger(__name__)

FILE = "verdict.json"
FIRST_S = 60.0  # after the start, which has other things to do


class Verdicts:
    """The last verdict, if there is one, and the next on its way."""

    def __init__(self, settings: Settings, aside: Aside) -> None:
        self._settings, self._aside = settings, aside
        folder = settings.state
        self._file = None if folder is None else folder / FILE
        self.last: dict[str, Any] | None = None if self._file is None else read_private(self._file)
        self._scheduled: asyncio.Task[None] | None = None
        self._under_way: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """True while the log is being judged."""
        return self._under_way is not None and not self._under_way.done()

    @property
    def next_at(self) -> float | None:
        """The time of the next one, in seconds since 1970; None if that is left to people."""
        every_s = self._settings.verify_s
        if every_s is None or self._file is None:
            return None
        return 0.0 if self.last is None else float(self.last["made"]) + every_s

    def open(self) -> None:
        """Begin to make one at each of its times; from the event loop."""
        if self.next_at is not None:
            self._scheduled = asyncio.create_task(self._make_again())

    async def close(self) -> None:
        """Make no more. One under way is ended with its process."""
        await end_task(self._scheduled)
        await end_task(self._under_way)

    def begin(self) -> None:
        """Make one now, if none is on its way; refused where no log is kept."""
        if self._file is None:
            raise HttpProblem(409, "this service keeps no log", "give it a --state folder")
        if not self.running:
            self._under_way = asyncio.create_task(self._make())

    async def _make_again(self) -> None:
        wait_s = FIRST_S
        while True:
            await asyncio.sleep(wait_s)
            if (self.next_at or 0.0) <= time.time():
                self.begin()
                while self.running:
                    await asyncio.sleep(FIRST_S)
            wait_s = max((self.next_at or 0.0) - time.time(), FIRST_S)

    async def _make(self) -> None:
        where = self._settings.database or str(self._settings.state)
        began = time.time()
        try:
            verdict = await self._aside.do(lambda: partial(judge_log, where))
            self.last = {**verdict, "made": began, "took_s": time.time() - began, "trouble": ""}
            if self._file is not None:
                await asyncio.to_thread(write_private, self._file, self.last)
        except (WeftError, HttpProblem) as error:
            log.warning("the log was not judged: %s", error.what)
            self.last = {**(self.last or {}), "made": began, "trouble": error.what}
        if self.last.get("wrong"):
            log.warning("the judge found %s things wrong: `weft verify`", self.last["wrong"])
