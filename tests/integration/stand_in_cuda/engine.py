"""The local engine on a machine whose one GPU is the stand-in, and jobs that obey."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.stand_in_cuda import HERE, MB, ROWS
from tests.waiting import LIMIT_S, until
from weft.app.serve.live import Live, Settings
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.runtime.loop.driver import Driver

ENGINE, POLICY = "local:warm=false,pin=false,name=here", "weft:strangers=true"
SUSPENDS = f"{ENGINE},mps=false"
TOTAL_GB = 100
# Of jobs whose programs are killed on purpose, even at their start several times in a row.
RETRIES, KILLED = 1000, (137, -9)
SMI = f"""#!/bin/sh
case "$1" in --query-gpu=index,name,memory.total) echo "0, NVIDIA Standin, {TOTAL_GB * 1024}";; esac
"""


class Machine:
    """One GPU of `TOTAL_GB` below `folder`; `built` has the stand-in's libraries."""

    def __init__(self, folder: Path, built: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.built, self.gpu = folder, built, folder / "gpu"
        self.gpu.write_bytes(struct.pack("Q", TOTAL_GB * 1024 * MB) + bytes(ROWS))
        smi = folder / "nvidia-smi"
        smi.write_text(SMI)
        smi.chmod(0o755)
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        suspender = (sys.executable, str(HERE / "suspend.py"), str(self.gpu))
        patch.setattr("weft.engines.local.find_suspender", lambda *_: suspender)

    @property
    def state(self) -> Path:
        """The folder of its service."""
        return self.folder / "state"

    @asynccontextmanager
    async def serving(
        self, engine: str = SUSPENDS, policy: str | None = None
    ) -> AsyncIterator[Driver]:
        """The driver of a service, for as long as this lasts; jobs outlive it."""
        settings = Settings(
            engine, self.state, policy=policy, decide_in="service", default=(POLICY,)
        )
        live = Live(settings)
        await live.open()
        try:
            async with asyncio.timeout(LIMIT_S):
                yield live.driver
        finally:
            await live.close()

    def job(self, name: str, command: str, **more: object) -> Job:
        """A job that runs a command of the shell, in which `$PROGRAM` is the stand-in's."""
        env = {
            "LD_LIBRARY_PATH": str(self.built),
            "STAND_IN_GPU": str(self.gpu),
            "PROGRAM": str(self.built / "program"),
        }
        launch = Launch(
            ("sh", "-c", command),
            str(self.folder),
            env,
            name=name,
            retries=RETRIES,
            retry_on=KILLED,
            backoff_s=0.1,
        )
        return Job(JobId(name), launch=launch, **more)  # type: ignore[arg-type] # of a job


class ToldJob:
    """A job whose program does what it is told, through pipes in a folder."""

    def __init__(self, machine: Machine, name: str, **more: object) -> None:
        ways = [machine.folder / f"{name}.{end}" for end in ("in", "out")]
        for way in ways:
            os.mkfifo(way)
        self.name = JobId(name)
        self.job = machine.job(name, f"exec $PROGRAM < {ways[0]} > {ways[1]}", **more)
        self._in, self._out = (os.open(way, os.O_RDWR | os.O_NONBLOCK) for way in ways)
        self._answer = b""

    def send(self, text: str) -> None:
        """A request whose answer is read later."""
        os.write(self._in, f"{text}\n".encode())

    def has_answered(self) -> bool:
        """True once there is an answer."""
        with suppress(BlockingIOError):
            self._answer += os.read(self._out, 4096)
        return self._answer.endswith(b"\n")

    async def answer(self) -> str:
        """The answer to the last request, however long that takes."""
        await until(self.has_answered)
        answer, self._answer = self._answer, b""
        return answer.decode().strip()

    async def ask(self, text: str) -> str:
        """The answer to one request."""
        self.send(text)
        return await self.answer()

    def close(self) -> None:
        """Let go of the pipes; a program at their end goes on."""
        os.close(self._in)
        os.close(self._out)
