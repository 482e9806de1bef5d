"""A process that works for a service: `python -m weft.runtime.aside.worker MEMORY_GB NICE`."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import sys
import time
import traceback
from types import FrameType
from typing import Any, BinaryIO

from weft.core.errors import EngineError, WeftError
from weft.runtime.aside.messages import Jobs, News, TookTooMuch, WorkRequest, WorkResult, read_work
from weft.runtime.deciding.frames import Unpackable, frame
from weft.wire.processes import die_with_parent

RARELY = 100_000  # objects made before garbage is looked for; thousands of jobs leave no cycles
IN_C_S = 1.0  # what does not return to Python is ended so much later, with its process


def main() -> None:
    """Work until the service has gone. What is printed meanwhile goes to standard error."""
    out = begin_worker(float(sys.argv[1]))
    os.nice(int(sys.argv[2]))
    known: Jobs = {}
    while True:
        try:
            work, known = read_work(sys.stdin.buffer, known)
        except EOFError:
            return
        _tell(out, work_on(work, out))


def begin_worker(memory_gb: float) -> BinaryIO:
    """Bind this process to its service, and return what its answers are written to."""
    die_with_parent()
    limit_memory(memory_gb)
    gc.set_threshold(RARELY)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def limit_memory(memory_gb: float) -> None:
    """Let this process have so much address space, or less where it may not have that."""
    most = int(memory_gb * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def work_on(work: WorkRequest, out: BinaryIO) -> WorkResult:
    """Do it within its time; report whatever it raises."""

    def spent(_number: int, _frame: FrameType | None) -> None:
        what = f"this needs more than {work.cpu_s:g} s of a processor"
        raise TookTooMuch(what, hint="ask for less at a time")

    signal.signal(signal.SIGPROF, spent)
    signal.setitimer(signal.ITIMER_PROF, work.cpu_s)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = math.ceil(time.process_time() + work.cpu_s + IN_C_S)
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard < 0 else min(most, hard), hard))
    try:
        return WorkResult(work.do(lambda value: _tell(out, News(value))))
    except WeftError as error:
        return WorkResult(error=error)
    except MemoryError:
        return WorkResult(
            error=TookTooMuch("this needs too much memory", hint="ask for less at a time")
        )
    except Exception as error:
        traceback.print_exc()  # a mistake of ours: the next work finds the process as it was
        return WorkResult(error=EngineError(f"this failed inside the scheduler: {error!r}"[:500]))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))


def _tell(out: BinaryIO, message: Any) -> None:
    try:
        body = frame(message)
    except Unpackable as error:
        body = frame(WorkResult(error=error))
    out.write(body)
    out.flush()


if __name__ == "__main__":
    main()
