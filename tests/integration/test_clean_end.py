"""SIGTERM ends a service, whatever it waits for, and the next one takes over its jobs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.postgres_server import running_server
from tests.waiting import LIMIT_S, read_address, until
from weft.engines.slurm.clients import Clients
from weft.wire.processes import descendants

SERVE = """
import sys
from pathlib import Path
from weft.app.serve.live import Settings
from weft.service.main import serve
engine, state = "simulated:cluster=1x4:a100,speed=1", Path(sys.argv[1])
settings = Settings(engine=engine, state=state, database=sys.argv[2], port=0)
serve(settings, ready=lambda address: print(address, flush=True))
"""


def start(state: Path, database: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", SERVE, str(state), database]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert service.stdout is not None
    return service, service.stdout.readline().strip()


def test_asking_a_client_that_has_ended_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output is still open in a process of its own when the question is cancelled."""
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/left\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def open_files() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    async def go() -> None:
        before, others = open_files(), {*descendants(os.getpid())}  # of tests before this one
        asking = asyncio.create_task(Clients().ask("squeue"))
        while not (tmp_path / "left").exists() or {*descendants(os.getpid())} - others:
            await asyncio.sleep(0.02)  # until only what it left behind is there
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asking, LIMIT_S)
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
        await until(lambda: open_files() <= before)  # its pipes are closed

    asyncio.run(go())


def test_a_service_ends_while_its_database_hangs_and_jobs_are_there_afterwards(
    tmp_path: Path,
) -> None:
    with running_server() as make:
        database = make()
        service, address = start(tmp_path, database)
        with httpx.Client(base_url=address, timeout=LIMIT_S, trust_env=False) as client:
            client.post("/api/v1/jobs", json={"id": "kept", "gpus": 1}).raise_for_status()
        sessions = database_sessions(database)
        for pid in sessions:
            os.kill(pid, signal.SIGSTOP)
        service.terminate()
        try:
            _, log = service.communicate(timeout=LIMIT_S)
        finally:
            for pid in sessions:
                os.kill(pid, signal.SIGCONT)
        assert "ending as a crash would" in log, log

        again, address = start(tmp_path, database)
        with httpx.Client(base_url=address, timeout=LIMIT_S, trust_env=False) as client:
            jobs = client.get("/api/v1/jobs").raise_for_status().json()["jobs"]
        again.terminate()
        again.communicate(timeout=LIMIT_S)
    assert [job["id"] for job in jobs] == ["kept"]
    assert again.returncode == 0


def test_a_service_that_has_closed_ends_before_python_clears_its_memory(tmp_path: Path) -> None:
    """Which takes seconds on a busy machine; here it takes for ever."""
    slow = "import atexit, sys, time; from weft.cli.main import main; sys.argv[0] = 'weft'; "
    slow += "atexit.register(time.sleep, 100_000); main()"
    engine = "simulated:cluster=1x4:a100"
    words = ["serve", "--engine", engine, "--port", "0", "--state", str(tmp_path)]
    command = [sys.executable, "-c", slow, *words]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    read_address(service)

    service.terminate()
    _, log = service.communicate(timeout=LIMIT_S)

    assert service.returncode == 0, log


def database_sessions(database: str) -> list[int]:
    """The server's processes that serve a database."""
    import psycopg

    with psycopg.connect(database) as session:
        asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'weft'"
        return [pid for (pid,) in session.execute(asked).fetchall()]
