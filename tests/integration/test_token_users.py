"""Users of jobs at the coordinator of stage tokens: each may join as jobs of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.users import ANN, AS_ROOT, BOB, open_folder, python_as
from tests.waiting import LIMIT_S
from weft.engines.machine.users import make_folder
from weft.wire.attempt import folder_of, job_folder
from weft.wire.identity import Identity

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root may become other users")

SAY = """
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.settimeout(600)
line.connect(sys.argv[1])
try:
    line.sendall(sys.argv[2].encode())
    print(line.recv(4096).decode() or "hung up")
except ConnectionError:
    print("hung up")
"""


@pytest.fixture(scope="module")
def coordinator() -> Iterator[str]:
    with open_folder() as folder:
        for job, uid in (("job-a", ANN), ("job-b", BOB)):
            own = job_folder(folder, job)
            attempt = folder_of(folder, job, 1)
            make_folder(attempt, folder, job, own / "checkpoints", Identity(uid, uid))
        path = folder / "tokens.sock"
        command = [sys.executable, "-m", "weft.node.tokens", str(path), "--state", str(folder)]
        process = subprocess.Popen(command)
        until = time.monotonic() + LIMIT_S
        while not path.exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        yield str(path)
        process.terminate()
        assert process.wait(LIMIT_S) == 0


def wire_lines(*messages: dict[str, object]) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def join_and_ask(job: str) -> str:
    join = {"type": "join", "job": job, "rank": 0, "pid": 1}
    return wire_lines(join, {"type": "ask", "stage": 1, "tokens": ["cpu"]})


def test_a_user_joins_as_a_job_of_its_own(coordinator: str) -> None:
    answer = json.loads(python_as(ANN, SAY, coordinator, join_and_ask("job-a")).splitlines()[0])

    assert answer["type"] == "granted"


@pytest.mark.parametrize("job", ["job-b", "no-such-job", "../../etc"])
def test_a_user_joins_as_nobody_else(coordinator: str, job: str) -> None:
    assert python_as(ANN, SAY, coordinator, join_and_ask(job)) == "hung up\n"


def test_only_the_service_inspects_all_members(coordinator: str) -> None:
    request = wire_lines({"type": "inspect"})

    assert python_as(ANN, SAY, coordinator, request) == "hung up\n"
    assert (
        json.loads(python_as(0, SAY, coordinator, request).splitlines()[0])["type"] == "inspected"
    )


def test_files_of_a_job_are_not_the_users_to_change(coordinator: str) -> None:
    own = Path(coordinator).parent / "jobs" / "job-a"
    write = "print(os.access(sys.argv[1], os.R_OK | os.W_OK))"

    assert python_as(ANN, write, str(own / "user.json")) == "False\n"
    assert python_as(ANN, write, str(own)) == "False\n"
    assert python_as(ANN, write, str(own / "checkpoints")) == "True\n"
