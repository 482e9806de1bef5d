"""Processes of our own that outlive the engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def spawn(module: Sequence[str], log: Path, env: Mapping[str, str]) -> int:
    """`python -m MODULE ARGS` in a session of its own, its output in `log`; its pid."""
    return spawn_command([sys.executable, "-P", "-m", *module], log, env)


def spawn_command(command: Sequence[str], log: Path, env: Mapping[str, str]) -> int:
    """Any command in a session of its own, its output in `log`; its pid."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawnp(
        command[0],
        list(command),
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def reap(pid: int) -> bool:
    """Whether a child has ended; it is then no zombie any more."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
