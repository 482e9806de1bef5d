"""Sweeps and arrays from flags, in the words of a job file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from weft.cli.job_files.flag_values import is_whole
from weft.core.errors import InvalidConfig

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
MOST_TASKS = 100_000  # far more than any service takes; it says how many that is


def sweep_of(sweep: Sequence[str], array: str | None) -> dict[str, Any]:
    """The fields of a job file that `--sweep` and `--array` set."""
    if sweep and array is not None:
        raise InvalidConfig(
            "--sweep and --array are both given", hint="an array is a sweep; choose"
        )
    if array is not None:
        return read_array(array, f"--array {array[:60]}")
    if not sweep:
        return {}
    grid: dict[str, list[str]] = {}
    for text in sweep:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not all(values.split(",")):
            raise InvalidConfig(
                f"--sweep {text!r} is not NAME=VALUE,VALUE", hint="--sweep lr=0.1,0.01"
            )
        grid[name] = values.split(",")
    return {"sweep": {"grid": grid}}


def read_array(text: str, where: str) -> dict[str, Any]:
    """A Slurm array, `0-9`, `1,3,5` or `0-9:3%2`: a sweep over `task`, with Slurm's variables."""
    numbers, percent, most = text.partition("%")
    tasks: list[int] = []
    for part in numbers.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or int(match[3] or 1) < 1:
            break
        first = int(match[1])
        more = range(first, int(match[2] or first) + 1, int(match[3] or 1))
        if more.stop - more.start > MOST_TASKS * more.step or len(tasks) > MOST_TASKS:
            raise InvalidConfig(f"{where} has more than {MOST_TASKS} tasks")
        tasks += more
    else:
        if tasks and (not percent or (is_whole(most) and int(most) > 0)):
            limit = {"max_parallel": int(most)} if percent else {}
            return {"sweep": {"list": [{"task": n} for n in tasks]}, "env": _env(tasks), **limit}
    raise InvalidConfig(f"{where} is not an array of tasks", hint="0-9, 1,3,5, 0-9:3 or 0-9%4")


def _env(tasks: Sequence[int]) -> dict[str, str]:
    return {
        "SLURM_ARRAY_JOB_ID": "${sweep}",
        "SLURM_ARRAY_TASK_ID": "${task}",
        "SLURM_ARRAY_TASK_COUNT": str(len(tasks)),
        "SLURM_ARRAY_TASK_MIN": str(min(tasks)),
        "SLURM_ARRAY_TASK_MAX": str(max(tasks)),
    }
