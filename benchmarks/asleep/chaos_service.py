"""A scheduler on the local engine that is told what to do line by line, for `chaos`.

python chaos_service.py ROOM SUSPENDER SLOTS
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from weft.core.errors import EngineError, WeftError
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.core.stops import PROBE
from weft.engines.local import LocalEngine
from weft.perf.learnt_costs import LearntCosts
from weft.runtime.loop.driver import Driver
from weft.runtime.loop.job_commands import resume, suspend
from weft.store.sqlite import SqliteStore


class Service:
    """One driver, and what may be asked of it."""

    def __init__(self, room: Path, suspender: str, slots: int) -> None:
        self.engine = LocalEngine(
            room / "state",
            slots=slots,
            warm=False,
            cpu=True,
            pin=False,
            suspender=(sys.executable, suspender, str(room / "devices")),
            wake_alone_s=5.0,
        )
        self.driver = Driver(
            self.engine,
            SqliteStore(room / "log.db"),
            policy="las:quantum=0.4",  # jobs take turns, several a second
            knowledge=lambda: Knowledge(costs=LearntCosts()),
            end_unknown=True,
        )

    async def do(self, asked: dict[str, Any]) -> dict[str, Any]:
        """One request."""
        what, job = asked["what"], JobId(asked.get("name", ""))
        try:
            await self._do(what, job, asked)
        except (WeftError, EngineError) as error:
            return {"ok": False, "error": str(error)}
        active = {
            str(status.record.job.id): f"{status.state}, attempt {status.record.attempt}, "
            f"allocation {status.record.allocation}, reason {status.record.reason}"
            for status in self.driver.jobs()
            if not status.record.outcome
        }
        return {"ok": True, "jobs": list(active), "states": active}

    async def _do(self, what: str, job: JobId, asked: dict[str, Any]) -> None:
        if what == "submit":
            launch = Launch(tuple(asked["command"]), workdir="/", retries=1_000, backoff_s=0.05)
            await self.driver.submit(Job(job, demand=Demand(1), launch=launch))
        elif what == "cancel":
            await self.driver.cancel(job)
        elif what == "suspend":
            await suspend(self.driver, job, "somebody")
        elif what == "resume":
            await resume(self.driver, job)
        else:
            await self._probe(what, job)

    async def _probe(self, what: str, job: JobId) -> None:
        attempt = self._running(job)
        if not attempt:
            return
        if what == "freeze":
            await self.engine.freeze(job, attempt, by=PROBE)
        elif what == "move to host":
            await self.engine.suspend(job, attempt, by=PROBE)
        elif what == "thaw":
            await self.engine.thaw(job, attempt, by=PROBE)

    def _running(self, job: JobId) -> int:
        record = self.driver.ledger.jobs.get(job)
        return record.running or 0 if record is not None else 0


async def main(room: Path, suspender: str, slots: int) -> None:
    """Answer until told to close."""
    service = Service(room, suspender, slots)
    await service.driver.open()
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        asked = json.loads(line) if line else {"what": "close"}
        if asked["what"] == "close":
            break
        answer = await service.do(asked)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await service.driver.close()
    sys.stdout.write(json.dumps({"ok": True}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
