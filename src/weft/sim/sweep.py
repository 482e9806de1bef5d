"""Many runs in parallel processes, results in the order asked for.

What a run computes depends on its own arguments alone, so the number of processes changes
nothing but the time it takes.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import SynchronizedArray
from typing import TypeVar

Spec = TypeVar("Spec")
Out = TypeVar("Out")
Report = Callable[[float], None]
Progress = Callable[[Sequence[float]], None]

ORPHAN_CHECK_S = 0.5
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
    workers = min(processes or os.cpu_count() or 1, len(specs))
    if workers <= 1:
        return _one_by_one(run, specs, progress)
    context = mp.get_context("spawn")
    done = context.Array("d", len(specs))
    with ProcessPoolExecutor(workers, context, _begin, (done, os.getpid())) as pool:
        futures = [pool.submit(_run, run, spec, i) for i, spec in enumerate(specs)]
        try:
            return _wait(futures, lambda: progress(done[:]) if progress is not None else None)
        except BaseException:
            for worker in list(pool._processes.values()):  # a run may take hours
                worker.terminate()
            raise


def _wait(futures: Sequence[Future[Out]], show_progress: Callable[[], None]) -> list[Out]:
    waiting = set(futures)
    while waiting:
        finished, waiting = wait(waiting, timeout=0.1, return_when=FIRST_EXCEPTION)
        show_progress()
        for future in futures:  # in their order, so that the same error is raised every time
            if future in finished:
                future.result()
    return [future.result() for future in futures]


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
