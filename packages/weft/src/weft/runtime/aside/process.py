"""The service's side: work is sent to a process, which is restarted once it was ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from weft.core.errors import EngineError
from weft.runtime.aside.messages import (
    Jobs,
    News,
    Report,
    TookTooMuch,
    WorkRequest,
    WorkResult,
    pack_work,
)
from weft.runtime.deciding.frames import read_frame

T = TypeVar("T")

SLOWEST = 20.0  # seconds of the clock for one of CPU time: others may need the machine
START_S = 60.0
POLITE = 3  # the kernel then gives others two thirds of a processor that both want
WORKER = (sys.executable, "-m", "weft.runtime.aside.worker")
ENDING_S = 5.0


class AsideProcess:
    """Does one piece of work after the other, each within `cpu_s` and `memory_gb`.

    One that is `polite` lets others have more of a busy processor.

    `run` blocks: call it from a thread. Functions are sent by name, so what is to be done is a
    function of a module, or `functools.partial` of one.
    """

    def __init__(self, cpu_s: float, memory_gb: float, polite: bool = False) -> None:
        self._cpu_s, self._memory_gb, self._nice = cpu_s, memory_gb, POLITE if polite else 0
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._known: Jobs = {}  # of the last work: the process has them

    @property
    def pid(self) -> int | None:
        """The process that works; None before it is needed."""
        return None if self._process is None else self._process.pid

    def run(self, do: Callable[[Report], T], report: Report = lambda _: None) -> T:
        """The result of the work; `report` gets its progress, and ends the work by raising.

        Raises what it raises, and TookTooMuch if it was ended.
        """
        with self._turn:
            process = self._started()
            frame, self._known = pack_work(WorkRequest(do, self._cpu_s), self._known)
            watch = threading.Timer(START_S + SLOWEST * self._cpu_s, process.kill)
            watch.start()
            try:
                done = self._ask(process, frame, report)
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(ENDING_S)  # its own end, and not ours, says why
                raise self._describe_end(process) from error
            except BaseException:  # the receiver wants no more reports
                self._describe_end(process)
                raise
            finally:
                watch.cancel()
        if done.error is not None:
            raise done.error
        value: T = done.value
        return value

    def close(self) -> None:
        """End it, also in the middle of something."""
        self._closed = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            self._forget(process)

    def _ask(self, process: subprocess.Popen[bytes], frame: bytes, report: Report) -> WorkResult:
        assert process.stdin is not None
        process.stdin.write(frame)
        process.stdin.flush()
        while True:
            message: News | WorkResult = read_frame(process.stdout)
            if isinstance(message, WorkResult):
                return message
            report(message.value)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise EngineError("the service is closing")
        if self._process is None or self._process.poll() is not None:
            self._known = {}
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [*WORKER, f"{self._memory_gb:g}", f"{self._nice}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is the service's to hear
            )
        return self._process

    def _describe_end(self, process: subprocess.Popen[bytes]) -> EngineError:
        process.kill()
        code = process.wait()
        self._forget(process)
        if self._closed:
            return EngineError("the service is closing")
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            what = f"this needs more than {self._cpu_s:g} s of a processor, or too much memory"
            return TookTooMuch(what, hint="ask for less at a time")
        return EngineError(f"the process that works this out ended with code {code}")

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process, self._known = None, {}
