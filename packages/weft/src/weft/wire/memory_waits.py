"""Agreement of services and nodes about allocations of GPU memory that wait.

The preloaded library (`weft.node.memory.preload`) is compiled when Weft is installed, and is
optional: without it nothing waits.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from weft.frozen import frozen
from weft.wire.attempt import write_whole

log = logging.getLogger(__name__)

PRELOAD = Path(__file__).parents[1] / "node" / "memory" / "preload"
SOCKET, WAITS, ORDER = "memory.sock", "memory.json", "memory-order.json"
GUARDED = "memory-guarded.json"
VARIABLE = "LD_PRELOAD"


@frozen
class WaitRow:
    """A job that waits for memory of a device since a Unix time, and what each job holds of it.

    `away` says that it gave its own memory to the others meanwhile. `missing_gb` must become free
    before it can go on.
    """

    job: str
    attempt: int
    gb: float
    since: float
    held: Mapping[str, float]
    away: bool = False
    missing_gb: float | None = None


def find_library(folder: Path = PRELOAD) -> Path | None:
    """The library as it was compiled from these sources; None where it was not.

    A wheel has the library without its sources.
    """
    if sys.platform != "linux":
        return None
    texts = [path.read_bytes() for path in sorted(folder.glob("*.[ch]"))]
    if not texts:
        return next(folder.glob("guard-*.so"), None)
    library = folder / f"guard-{crc32(b''.join(texts)):08x}.so"
    return library if library.exists() else None


def add_guard(
    library: Path, socket: str, priority: float, env: Mapping[str, str]
) -> dict[str, str]:
    """An environment with the guard in front of what a job preloads itself."""
    preloaded = ":".join(filter(None, (str(library), env.get(VARIABLE, ""))))
    waits = {"WEFT_MEMORY": socket, "WEFT_MEMORY_PRIORITY": f"{priority:g}"}
    return {**env, VARIABLE: preloaded, **waits}


def without_guard(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without the library that this process itself may have been started with."""
    theirs = [
        path for path in env.get(VARIABLE, "").split(":") if path and not _is_guard(Path(path))
    ]
    rest = {name: value for name, value in env.items() if name != VARIABLE}
    return {**rest, VARIABLE: ":".join(theirs)} if theirs else rest


def _is_guard(path: Path) -> bool:
    return path.parent == PRELOAD


def read_waits(state: Path) -> tuple[WaitRow, ...]:
    """Return the waits in the book of an engine's folder; none where there is none."""
    try:
        rows = json.loads((state / WAITS).read_text())
        return tuple(
            WaitRow(
                str(row["job"]),
                int(row["attempt"]),
                float(row["gb"]),
                float(row["since"]),
                {str(job): float(gb) for job, gb in row["held"].items()},
                bool(row["away"]),
                None if row.get("missing") is None else float(row["missing"]),
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if not isinstance(error, FileNotFoundError):
            log.debug("the memory waits of %s cannot be read: %r", state, error)
        return ()


def read_guarded(state: Path) -> set[tuple[str, int]] | None:
    """Attempts whose processes the book of an engine's folder has heard of; None if not known."""
    try:
        rows = json.loads((state / GUARDED).read_text())
        return {(str(job), int(attempt)) for job, attempt in rows}
    except (OSError, ValueError, TypeError) as error:
        if not isinstance(error, FileNotFoundError):
            log.debug("the guarded attempts of %s cannot be read: %r", state, error)
        return None


def write_order(state: Path, order: Mapping[str, tuple[float, ...]]) -> None:
    """Leave the policy's order for the book of an engine's folder; it outlives both."""
    write_whole(state / ORDER, dict(order))


def read_order(state: Path) -> dict[str, tuple[float, ...]]:
    """The order that was left last; empty where there is none, or it cannot be read."""
    try:
        order = json.loads((state / ORDER).read_text())
        return {str(job): tuple(map(float, at)) for job, at in order.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("the order for memory of %s cannot be read: %r", state, error)
        return {}
