"""Many runs in parallel processes, results in the order asked for.

What a run computes depends on its own arguments alone, so the number of processes changes
nothing but the time it takes.
"""

from __future__ import annotations

import multiprocessing as mp
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import SynchronizedArray
from typing import TypeVar

Spec = TypeVar("Spec")
Out = TypeVar("Out")
Report = Callable[[float], None]
Progress = Callable[[Sequence[float]], None]

_done: SynchronizedArray[float] | None = None


def sweep(
    run: Callable[[Spec, Report], Out],
    specs: Sequence[Spec],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[Out]:
    """`run` every spec; `progress` gets the fraction done of each, now and then.

    The first error ends the sweep and is raised here.
    """
    workers = min(processes or os.cpu_count() or 1, len(specs))
    if workers <= 1:
        return _one_by_one(run, specs, progress)
    context = mp.get_context("spawn")
    done = context.Array("d", len(specs))
    with ProcessPoolExecutor(workers, context, _share, (done,)) as pool:
        futures = [pool.submit(_run, run, spec, i) for i, spec in enumerate(specs)]
        waiting = set(futures)
        while waiting:
            finished, waiting = wait(waiting, timeout=0.1, return_when=FIRST_EXCEPTION)
            if progress is not None:
                progress(done[:])
            if any(future.exception() for future in finished):
                for future in waiting:
                    future.cancel()
                break
        return [future.result() for future in futures if not future.cancelled()]


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


def _share(done: SynchronizedArray[float]) -> None:
    global _done
    _done = done


def _run(run: Callable[[Spec, Report], Out], spec: Spec, i: int) -> Out:
    shared = _done
    assert shared is not None

    def report(fraction: float) -> None:
        shared[i] = fraction

    result = run(spec, report)
    report(1.0)
    return result
