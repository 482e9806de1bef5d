"""Many runs of a function on a Ray cluster, results in the order asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

from weft.core.errors import EngineError, InvalidConfig

Spec = TypeVar("Spec")
Out = TypeVar("Out")
Progress = Callable[[Sequence[float]], None]
PAUSE_S = 0.5


def spread(
    run: Callable[[Spec], Out],
    specs: Sequence[Spec],
    address: str,
    *,
    progress: Progress | None = None,
) -> list[Out]:
    """`run` every spec, each on one CPU of the cluster; `progress` gets which are done.

    `run` and what it needs must be installed on the nodes. The first error ends the rest and is
    raised here.
    """
    if find_spec("ray") is None:
        raise InvalidConfig("a Ray cluster needs ray", hint="pip install 'weft[ray]'")
    import ray

    _connect(ray, address)
    try:
        task = ray.remote(num_cpus=1, max_retries=2)(run)
        refs = [task.remote(spec) for spec in specs]
        _wait_for(ray, refs, progress)
        return list(ray.get(refs))
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    os.environ.setdefault("RAY_DISABLE_IMPORT_WARNING", "1")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise EngineError(
            f"no Ray at {address}: {lines[-1]}",
            hint="ray://HOST:10001 from anywhere, HOST:PORT of the head on one of its nodes; "
            "a cluster with a token needs RAY_AUTH_TOKEN_PATH",
        ) from error


def _wait_for(ray: Any, refs: Sequence[Any], progress: Progress | None) -> None:
    """Until all are done, or one has failed."""
    waiting = list(refs)
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=PAUSE_S)
        for ref in done:
            try:
                ray.get(ref)
            except ray.exceptions.RayTaskError:
                for other in waiting:
                    ray.cancel(other, force=True)
                raise
        if progress is not None:
            left = set(waiting)
            progress([0.0 if ref in left else 1.0 for ref in refs])
