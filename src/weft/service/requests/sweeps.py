"""From one job file with a sweep to the files of its jobs.

`${name}` of a parameter is replaced by its value in texts of the file; what else is in `${...}` is
left to its reader. Each job also finds its values in `WEFT_SWEEP_NAME` variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from weft.service.requests.field_types import LONGEST_NAME
from weft.service.requests.job_file import JobFile, Sweep, Value, name_of

NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SWEEP, INDEX = "sweep", "index"  # parameters that every job of a sweep has


def expand(body: JobFile, sweep: str) -> Iterator[tuple[JobFile, dict[str, str]]]:
    """The file and the parameters of each job; `sweep` is the id of the whole."""
    if body.sweep is None:
        yield body, {}
        return
    for index, values in enumerate(combinations(body.sweep)):
        known = {SWEEP: sweep, INDEX: str(index), **values}
        yield _fill(body, known, f"{sweep}.{index}", index), values


def combinations(sweep: Sweep) -> Iterator[dict[str, str]]:
    """The parameters of each job, the last of a grid changing fastest."""
    if sweep.list:
        yield from ({name: _text(value) for name, value in values.items()} for values in sweep.list)
        return
    grid = sweep.grid or {}
    for values in product(*grid.values()):
        yield dict(zip(grid, map(_text, values), strict=True))


def substitute(text: str, known: Mapping[str, str]) -> str:
    """The text with the values of parameters in place of their names."""
    return NAMED.sub(lambda match: known.get(match[1], match[0]), text)


def _fill(body: JobFile, known: Mapping[str, str], job_id: str, index: int) -> JobFile:
    variables = {f"WEFT_SWEEP_{name.upper()}": value for name, value in known.items()}
    env = {
        name: substitute(value, known) if isinstance(value, str) else value
        for name, value in body.env.items()
    }
    names = {
        "id": job_id,
        "name": f"{name_of(body)[: LONGEST_NAME - len(f'.{index}')]}.{index}",
        "app": known[SWEEP],
    }
    changes: dict[str, Any] = {
        "id": None,
        "sweep": None,
        "max_parallel": None,
        "env": {**variables, **env},
        "workdir": substitute(body.workdir, known),
    }
    if body.command is not None:
        changes["command"] = [substitute(word, known) for word in body.command]
    if body.run is not None:
        changes["run"] = substitute(body.run, known)
    if body.setup is not None:
        changes["setup"] = substitute(body.setup, known)
    if body.checkpoint is not None:
        folder = substitute(body.checkpoint.dir, known)
        changes["checkpoint"] = body.checkpoint.model_copy(update={"dir": folder})
    filled = JobFile.model_validate({**dict(body), **changes})
    # Names that we made are longer than those that people choose, and are not checked like them.
    return filled.model_copy(update={**names, "max_parallel": body.max_parallel})


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}"
