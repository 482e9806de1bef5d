"""A service is killed while a job leaves, and comes back: the log tells each thing once."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections import Counter
from pathlib import Path

from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.core.events.event import Event, Saved, Started, Stopped
from weft.service.responses.answers import Done, Made
from weft.store.sqlite import SqliteStore

RANK = """
import os, sys, time
from pathlib import Path
from weft.base.client import AgentConnection
from weft.base.environment import Environment
from weft.base.messages import Hello, Leaving, Saved, Stop

asked, may_leave = map(Path, sys.argv[1:])
env = Environment.read()
agent = AgentConnection(env.agent, Hello(env.job, env.attempt, env.number, os.getpid()))
for step in (10, 20):
    agent.send(Saved(step, 0, ""))
while not any(isinstance(message, Stop) for message in agent.poll()):
    time.sleep(0.05)
asked.touch()
while not may_leave.exists():
    time.sleep(0.05)
agent.send(Saved(30, 0, ""))
agent.send(Leaving("stopped", ""))
agent.close(1.0)
"""


def test_what_an_adopted_job_saved_and_its_end_are_in_the_log_once(tmp_path: Path) -> None:
    asked, may_leave, state = tmp_path / "asked", tmp_path / "may-leave", tmp_path / "state"
    engine = "local:cpu=true,warm=false,name=here,slots=1"
    service = Service(state, ("--engine", engine, "--policy", "fifo"))
    service.start()
    try:
        command = [sys.executable, "-c", RANK, str(asked), str(may_leave)]
        body = {
            "command": command,
            "workdir": str(tmp_path),
            "gpus": 1,
            "checkpoint": {"grace_s": 600},
        }
        name = service.client.post(Made, "/jobs", body).id
        wait_until(lambda: service.job(name).saved_step == 20, "it saved")
        service.client.post(Done, "/nodes/here/drain")
        wait_until(asked.exists, "it was asked to leave")
        service.end(signal.SIGKILL)

        may_leave.touch()
        (journal,) = (state / "jobs").rglob("events.jsonl")
        wait_until(lambda: '"ended"' in journal.read_text(), "it left while nobody looked")
        service.start()
        wait_until(lambda: service.job(name).saved_step == 30, "the last checkpoint is known")
        wait_until(lambda: not any((state / "live").iterdir()), "nothing of it is left")
    finally:
        service.end()

    counts = Counter(events_of(state))
    assert {repr(event): n for event, n in counts.items() if n > 1} == {}
    assert {event.step for event in counts if isinstance(event, Saved)} == {10, 20, 30}


def events_of(state: Path) -> list[Event]:
    with contextlib.closing(SqliteStore(state / "events.db")) as store:
        rows = store.since(0)
    return [event for _, _, event in rows if isinstance(event, (Started, Saved, Stopped))]
