"""Many runs in parallel processes, results in the order asked for.

What a run computes depends on its own arguments alone, so the number of processes changes
nothing but the time it takes.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Generic, TypeVar

Spec = TypeVar("Spec")
Out = TypeVar("Out")
Report = Callable[[float], None]
Progress = Callable[[Sequence[float]], None]

ORPHAN_CHECK_S = 0.5
SHOW_S = 0.1
MANY = 4  # runs left for each process: then another is given to it before it has ended one
WITH_THREADS = ("grpc", "jax", "numba", "ray", "scipy", "sklearn", "tensorflow", "torch")
_done: SynchronizedArray[float] | None = None


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
    workers = min(processes or os.cpu_count() or 1, len(specs)) - 1
    if workers < 1:
        return _one_by_one(run, specs, progress)
    context = mp.get_context("fork" if can_copy() else "spawn")
    done = context.Array("d", len(specs))
    with ProcessPoolExecutor(workers, context, _begin, (done, os.getpid())) as pool:
        show = (lambda: progress(done[:])) if progress else (lambda: None)
        shared = _Shared(run, specs, pool, workers, show)
        try:
            shared.submit()
            return shared.finish(done)
        except BaseException:
            for worker in list(pool._processes.values()):  # a run may take hours
                worker.terminate()
            raise


def can_copy() -> bool:
    """Whether a copy of this process can run on, with all modules and workloads it has loaded.

    Threads are not copied, so it must have none: neither Python's nor those of such a library.
    """
    threaded = threading.active_count() > 1 or any(name in sys.modules for name in WITH_THREADS)
    return sys.platform == "linux" and not threaded


class _Shared(Generic[Spec, Out]):
    """Runs that other processes take from the front and this one from the back.

    It has all that it needs already, and its results need not travel. Apart as they are, they
    rarely need the same workload.
    """

    def __init__(
        self,
        run: Callable[[Spec, Report], Out],
        specs: Sequence[Spec],
        pool: ProcessPoolExecutor,
        workers: int,
        show_progress: Callable[[], None],
    ) -> None:
        self._run, self._specs, self._pool, self._show = run, specs, pool, show_progress
        self._workers, self._flying = workers, 0
        self._left = deque(range(len(specs)))
        self._elsewhere: dict[int, Future[Out]] = {}
        self._lock = threading.Lock()  # the thread that takes a run records it
        self._failed = False
        self._shown = -SHOW_S

    def submit(self) -> None:
        """Have as many done elsewhere as there are processes, and those that follow.

        While many are left, each process has its next one at hand: until this one has taken a
        result, given out the next run and gone on, it would be idle.
        """
        new = []
        with self._lock:
            while self._left:
                ahead = self._workers if len(self._left) > MANY * self._workers else 0
                if self._flying >= self._workers + ahead:
                    break
                i = self._left.popleft()
                self._elsewhere[i] = self._pool.submit(_run, self._run, self._specs[i], i)
                self._flying += 1
                new.append(self._elsewhere[i])
        for future in new:
            future.add_done_callback(self._go_on)

    def _go_on(self, ended: Future[Out]) -> None:
        """In a thread of the pool."""
        if ended.cancelled() or ended.exception() is not None:
            self._failed = True
            return
        with self._lock:
            self._flying -= 1
        self.submit()

    def finish(self, done: SynchronizedArray[float]) -> list[Out]:
        """All results, in order; the first error is raised."""
        here: dict[int, Out] = {}
        while (i := self._take()) is not None:

            def report(fraction: float, i: int = i) -> None:
                done[i] = fraction
                self._look()

            here[i] = self._run(self._specs[i], report)
            report(1.0)
        while any(not future.done() for future in self._elsewhere.values()):
            wait(self._elsewhere.values(), timeout=SHOW_S, return_when=FIRST_EXCEPTION)
            self._look()
        self._show()
        results = here | {i: future.result() for i, future in self._elsewhere.items()}
        return [results[i] for i in range(len(self._specs))]

    def _take(self) -> int | None:
        with self._lock:
            return self._left.pop() if self._left else None

    def _look(self) -> None:
        """Raise what another process has, and tell from time to time how far all are."""
        if self._failed:
            for i in sorted(self._elsewhere):  # so that the same error is raised every time
                if self._elsewhere[i].done():
                    self._elsewhere[i].result()
        if time.monotonic() >= self._shown + SHOW_S:
            self._shown = time.monotonic()
            self._show()


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


def _begin(done: SynchronizedArray[float], parent: int) -> None:
    """In a worker: Ctrl-C is its parent's to handle, and it does not outlive its parent."""
    global _done
    _done = done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    os._exit(1)


def _run(run: Callable[[Spec, Report], Out], spec: Spec, i: int) -> Out:
    shared = _done
    assert shared is not None

    def report(fraction: float) -> None:
        shared[i] = fraction

    result = run(spec, report)
    report(1.0)
    return result
