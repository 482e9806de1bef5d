"""Questions to the bridge, one at a time; it is restarted when it is gone."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.core.errors import EngineError
from weft.engines.fleet.port import ControllerUnreachable
from weft.wire.ending import end_process

CONNECT_S = 90.0  # a driver of Ray takes seconds to begin, more on a busy machine
ANSWER_S = 60.0
OTHERS_S = {"poll": 15.0, "fetch": 900.0, "push": 900.0}  # a poll is asked again, files are large
PAUSE_S = 3.0  # between two tries to connect
LONGEST = 1 << 26


@dataclass
class BridgeClient:
    """A conversation with Ray. `connect` is the first request to the bridge, each time."""

    connect: Mapping[str, object]
    log: Path
    env: Mapping[str, str]
    _process: asyncio.subprocess.Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _again_at: float = 0.0
    _why: str = ""

    async def ask(self, call: str, **given: object) -> Any:
        """The answer; Unreachable without a cluster, LookupError and OSError as they come."""
        async with self._turn:
            process = await self._need_process()
            answer = await self._exchange(process, call, given, OTHERS_S.get(call, ANSWER_S))
        if "error" not in answer:
            return answer["ok"]
        if answer["kind"] == "LookupError":
            raise LookupError(answer["error"])
        if answer["kind"] in ("OSError", "FileNotFoundError", "PermissionError"):
            raise OSError(answer["error"])
        raise ControllerUnreachable(f"Ray: {_last_line(answer['error'])}")

    async def close(self) -> None:
        """End the bridge; what runs in the cluster goes on."""
        async with self._turn:
            await self._end()

    async def _need_process(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        if time.monotonic() < self._again_at:
            raise ControllerUnreachable(self._why)
        self._again_at = time.monotonic() + PAUSE_S
        process = await self._start()
        answer = await self._exchange(process, "connect", self.connect, CONNECT_S)
        if "error" in answer:
            await self._end()
            self._why = f"no Ray at {self.connect['address']}: {_last_line(answer['error'])}"
            if answer["kind"] == "AuthenticationError":
                raise EngineError(self._why, hint="is RAY_AUTH_TOKEN_PATH its token?")
            raise ControllerUnreachable(self._why)
        return process

    async def _start(self) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "weft.engines.ray.bridge"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.env},
                limit=LONGEST,
                start_new_session=True,  # Ctrl-C is for the service
            )
        return self._process

    async def _exchange(
        self,
        process: asyncio.subprocess.Process,
        call: str,
        given: Mapping[str, object],
        within_s: float,
    ) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(within_s):
                process.stdin.write(json.dumps([call, given]).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            self._why = f"no answer from Ray for {within_s:g} s"
            await self._end()
            raise ControllerUnreachable(self._why) from None
        except asyncio.CancelledError:
            await self._end()  # its answer would be taken for that to the next question
            raise
        except OSError:
            line = b""
        if not line:
            self._why = f"the connection to Ray ended; see {self.log}"
            await self._end()
            raise ControllerUnreachable(self._why)
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            await end_process(process)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it gave no reason"
