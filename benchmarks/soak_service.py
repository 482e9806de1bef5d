"""The child of the crash soak: a service that takes requests over pipes instead of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from benchmarks.soak_jobs import jobs_of
from weft.app.engine import build_engine
from weft.core.errors import WeftError
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import JobId, NodeId
from weft.perf.linear import LinearBeliefs
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered, profile_of
from weft.predict.hinted import Hinted
from weft.runtime.loop.driver import Driver
from weft.store.sqlite import SqliteStore

OPEN_FILES = 512
GONE_S = 60.0  # for the last agents
LATE_S = 120.0  # after which a start says what it waits for


def knowledge() -> Knowledge:
    """What the scheduler knows before the first event; a replay begins with the same."""
    return Knowledge(Hinted(), LinearBeliefs(), Colocated(profile_of, Unordered("timeslicing")))


async def serve(state: Path, engine: str) -> None:
    """Until there are no more requests."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))
    store = SqliteStore(state / "events.db")
    driver = Driver(
        build_engine(engine, state=state), store, knowledge=knowledge, snapshot_every=100
    )
    opening = asyncio.create_task(driver.open())
    done, _ = await asyncio.wait([opening], timeout=LATE_S)
    if not done:
        _tell_where_it_stands()
    await opening
    _say({"ready": [node.id for node, _ in driver.nodes()]})
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        try:
            await _do(driver, state, request)
        except WeftError as error:
            _say({"refused": str(error)})
        else:
            _say(request)
    await driver.close()
    store.close()


async def _do(driver: Driver, state: Path, request: dict[str, Any]) -> None:
    match request["do"]:
        case "submit":
            await driver.submit(*jobs_of(request))
        case "cancel":
            await driver.cancel(JobId(request["job"]))
        case "policy":
            await driver.set_policy(request["policy"])
        case "drain":
            await driver.drain(NodeId(request["node"]))
        case "undrain":
            await driver.undrain(NodeId(request["node"]))
        case "files":
            await _use_up_files(request["seconds"])
        case "wait":
            for job in [*driver.ledger.jobs]:
                await driver.ended(job)
            async with asyncio.timeout(GONE_S):
                while any((state / "live").iterdir()):
                    await asyncio.sleep(0.1)


async def _use_up_files(seconds: float) -> None:
    """Let nobody in this process open a file for a while."""
    taken: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(0))
    await asyncio.sleep(seconds)
    for handle in taken:
        os.close(handle)


def _tell_where_it_stands() -> None:
    """A start that takes for ever: every task and thread, into the log."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
