"""Many runs in parallel processes, results in the order asked for.

What a run computes depends on its own arguments alone, so the number of processes changes
nothing but the time it takes.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import pickle
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from ctypes import Array, c_byte, c_double, c_int
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Lock
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

from weft.core.errors import EngineError
from weft.frozen import frozen

Spec = TypeVar("Spec")
Out = TypeVar("Out")
Report = Callable[[float], None]
Progress = Callable[[Sequence[float]], None]

ORPHAN_CHECK_S = 0.5
SHOW_S = 0.1
WITH_THREADS = ("grpc", "jax", "numba", "ray", "scipy", "sklearn", "tensorflow", "torch")
ENDED, FAILED, READ = 1, 2, 3


def sweep(
    run: Callable[[Spec, Report], Out],
    specs: Sequence[Spec],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[Out]:
    """`run` every spec; `progress` gets the fraction done of each, from time to time.

    The first error, or Ctrl-C, ends the sweep with its processes and is raised here.
    """
    others = min(processes or os.cpu_count() or 1, len(specs)) - 1
    if others < 1:
        return _one_by_one(run, specs, progress)
    context: Any = mp.get_context("fork" if can_copy() else "spawn")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="weft-sweep-")))
        board = _Board(
            context.Lock(),
            context.RawArray("i", [0, len(specs)]),
            context.RawArray("d", len(specs)),
            context.RawArray("b", len(specs)),
            folder,
        )
        workers = [
            context.Process(target=_work, args=(run, specs, board, os.getpid()))
            for _ in range(others)
        ]
        try:
            for worker in workers:
                worker.start()
            return _Sweep(run, specs, board, workers, progress).finish()
        finally:
            for worker in workers:  # after an error: a run may take hours
                if worker.pid is not None:
                    worker.terminate()
                    worker.join()


def can_copy() -> bool:
    """True if a copy of this process can run on, with all modules and workloads it has loaded.

    Threads are not copied, so it must have none: neither Python's nor those of such a library.
    """
    threaded = threading.active_count() > 1 or any(name in sys.modules for name in WITH_THREADS)
    return sys.platform == "linux" and not threaded


@frozen
class _Board:
    """The shared board of a sweep: which runs are left, and how far the others are.

    A process takes its next run by itself, so none waits for another. Results are files: through
    a pipe they would wait until the process that compares, busy with a run, has read them.
    """

    lock: Lock
    left: Array[c_int]  # the first run that nobody has taken, and the end of those
    done: Array[c_double]
    state: Array[c_byte]
    folder: Path

    def take(self, *, last: bool = False) -> int | None:
        """The first run that is left, or the last; None if there is none."""
        with self.lock:
            first, end = self.left
            if first >= end:
                return None
            self.left[:] = [first, end - 1] if last else [first + 1, end]
            return end - 1 if last else first

    def write(self, i: int, content: object, state: int) -> None:
        """Write how run `i` ended."""
        (self.folder / str(i)).write_bytes(pickle.dumps(content, pickle.HIGHEST_PROTOCOL))
        self.state[i] = state

    def read(self, i: int) -> Any:
        path = self.folder / str(i)
        content = pickle.loads(path.read_bytes())  # noqa: S301 - in a folder of ours alone
        path.unlink()
        return content


class _Sweep(Generic[Spec, Out]):
    """Runs that other processes take from the front and this one from the back.

    It has all that it needs already, and its results need not travel. Apart as they are, they
    rarely need the same workload.
    """

    def __init__(
        self,
        run: Callable[[Spec, Report], Out],
        specs: Sequence[Spec],
        board: _Board,
        workers: Sequence[BaseProcess],
        progress: Progress | None,
    ) -> None:
        self._run, self._specs, self._board, self._workers = run, specs, board, workers
        self._progress = progress
        self._results: dict[int, Out] = {}
        self._shown = -SHOW_S

    def finish(self) -> list[Out]:
        """All results, in order; the first error is raised."""
        while (i := self._board.take(last=True)) is not None:

            def report(fraction: float, i: int = i) -> None:
                self._board.done[i] = fraction
                self._poll_workers()

            self._results[i] = self._run(self._specs[i], report)
            report(1.0)
            self._collect()
        while running := [worker.sentinel for worker in self._workers if worker.is_alive()]:
            wait(running, SHOW_S)
            self._poll_workers()
            self._collect()
        self._poll_workers(now=True)
        self._collect()
        return [self._results[i] for i in range(len(self._specs))]

    def _collect(self) -> None:
        """Read what other processes have written."""
        for i, state in enumerate(self._board.state):
            if state == ENDED:
                self._results[i] = self._board.read(i)
                self._board.state[i] = READ

    def _poll_workers(self, *, now: bool = False) -> None:
        """Raise what another process has, and tell from time to time how far all are."""
        if not now and time.monotonic() < self._shown + SHOW_S:
            return
        self._shown = time.monotonic()
        for i, state in enumerate(self._board.state):
            if state == FAILED:
                error, where = self._board.read(i)
                raise error from RuntimeError(where)
        for worker in self._workers:
            if worker.exitcode:
                raise EngineError(
                    f"a process of this comparison ended with {worker.exitcode}",
                    hint="-9 is mostly too little memory: use fewer --processes",
                )
        if self._progress is not None:
            self._progress(self._board.done[:])


def _one_by_one(
    run: Callable[[Spec, Report], Out], specs: Sequence[Spec], progress: Progress | None
) -> list[Out]:
    done = [0.0] * len(specs)
    results = []
    for i, spec in enumerate(specs):

        def report(fraction: float, i: int = i) -> None:
            done[i] = fraction
            if progress is not None:
                progress(done)

        results.append(run(spec, report))
        report(1.0)
    return results


def _work(
    run: Callable[[Spec, Report], Out], specs: Sequence[Spec], board: _Board, parent: int
) -> None:
    """The work of another process: run after run, until none is left or one fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is its parent's to handle
    threading.Thread(target=_end_with, args=(parent, board.folder), daemon=True).start()
    while (i := board.take()) is not None:

        def report(fraction: float, i: int = i) -> None:
            board.done[i] = fraction

        try:
            board.write(i, run(specs[i], report), ENDED)
        except Exception as error:
            board.write(i, (_sendable(error), traceback.format_exc()), FAILED)
            return
        report(1.0)


def _sendable(error: Exception) -> Exception:
    """The error, or one with its text where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end_with(parent: int, folder: Path) -> None:
    """In a worker: it does not outlive its parent, and leaves nothing behind."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
