"""Terms of a job's processes on each node: its job file asks for them, its agents keep them.

A field is declared here alone. The service's job file takes it, logs and requests to agents carry
it, and `docs/how-to/job-files.md` explains it; the code that acts on it reads it.
"""

from __future__ import annotations

from dataclasses import field, fields
from enum import StrEnum
from typing import Any, TypeVar

from weft.frozen import frozen_by_name

DEFAULT_GRACE_S = 30.0
T = TypeVar("T")


class Processes(StrEnum):
    """Number of processes that run a command."""

    AUTO = "auto"  # for each GPU if it is a script that imports weft_train, else once per node
    ONE = "1"  # once per node; it sees all GPUs that the job has there
    PER_GPU = "per-gpu"


def said(default: T, meaning: str, without: str, **limits: float) -> T:
    """A field of job files with the same name: `limits` are `ge`, `gt` and `le`.

    People leave it out to have a default that is outside its limits.
    """
    about = {"meaning": meaning, "without": without, "limits": limits}
    return field(default=default, metadata=about)


@frozen_by_name
class RunTerms:
    """Options of a job for its processes.

    The command is started as often as `processes` says. `setup` is a script that runs once on each
    node before it. A job that runs for `time_limit_s` (0: no limit) fails for good. A stop may take
    `grace_s` seconds. With `pty` the command has a terminal that its owner can look at and type
    into, and ends when nothing was typed or printed there for `idle_s` (0: never). `metrics` are
    the names, with `*` and `?`, of numbers in its output that are kept as its metrics.
    """

    processes: Processes = Processes.AUTO
    setup: str = ""
    grace_s: float = DEFAULT_GRACE_S
    idle_s: float = 0.0
    metrics: tuple[str, ...] = ()
    time_limit_s: float = said(
        0.0,
        "how long it may run, over all its starts on a machine: `90s`, `2h`, `1-12:00:00`; then it "
        "is asked to leave and fails for good",
        "none",
        gt=0.0,
        le=1e12,
    )
    warn_s: float = said(
        0.0,
        "sends SIGUSR1 to its processes this long before the limit; a program that does not handle "
        "the signal is ended by it",
        "no signal",
        ge=0.0,
        le=1e12,
    )
    pty: bool = said(False, "a terminal for [sessions](sessions.md)", "none")
    watch: bool = said(
        True,
        "whether [its Python processes count their steps](../explanation/watching.md) for the "
        "scheduler",
        "yes",
    )
    log_mb: int = said(
        16,
        "MB of output that are kept of each process, and as much again of what came before; older "
        "output is dropped",
        "16",
        ge=1,
        le=4096,
    )

    def terms(self) -> dict[str, Any]:
        """Every field by name, without those of a class that adds to these."""
        return {each.name: getattr(self, each.name) for each in fields(RunTerms)}
