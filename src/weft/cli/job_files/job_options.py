"""Options that say what a job is: the words of a job file, as flags.

`takes_flags` gives a command all of them; the command gets what was typed as one `Flags`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from weft.cli.job_files.job_file import Flags

PANEL = "Job (the fields of a job file)"
# Flags by what they are for; all others are in PANEL.
PANELS = {
    "Order, sweeps and arrays": (
        *("sweep", "array", "max_parallel", "app", "after_ok", "after_any", "after_not_ok"),
    ),
    "Where and as what it runs": (
        *("workdir", "env", "env_file", "secret", "venv", "conda", "uv", "processes"),
    ),
    "Time, failures and stops": (
        *("time_limit", "deadline", "idle_timeout", "retries", "checkpoint", "grace_s"),
    ),
}
KEYWORD = Parameter.KEYWORD_ONLY

OPTIONS: dict[str, Any] = {
    "name": (str, "What to call it; default: the script's name.", "--name"),
    "gpus": (str, "GPUs: a number, 0 for none, or 1-4 for an elastic job.", "--gpus", "-g"),
    "nodes": (int, "Nodes: exactly so many, with the same number of GPUs on each.", "--nodes"),
    "kinds": (str, "Kinds of GPU that will do, joined by commas.", "--kinds"),
    "batch": (
        str,
        "Batch sizes it may train with: FIRST-LARGEST, and :MOST for one GPU.",
        "--batch",
    ),
    "processes": (str, "Processes: 1 a node, per-gpu, or auto.", "--processes"),
    "share": (
        str,
        "allowed, never, slowdown=1.3,memory_gb=20, or a part of one GPU: 0.5.",
        "--share",
    ),
    "no_share": (bool, "The same as --share never.", "--no-share"),
    "tenant": (str, "The tenant whose quota it counts against.", "--tenant"),
    "priority": (str, "guaranteed, normal or opportunistic.", "--priority"),
    "workdir": (Path, "Folder it runs in; default: the current folder.", "--workdir"),
    "env": (list[str], "KEY=VALUE for it; KEY alone takes the value it has here.", "--env", "-e"),
    "env_file": (list[Path], "File of KEY=VALUE lines for it.", "--env-file"),
    "time_limit": (str, "How long it may run: 90s, 30m, 2h, 1-12:00:00.", "--time-limit"),
    "deadline": (
        str,
        "How soon it should be done: 30m, 8h, 2d; reported if missed.",
        "--deadline",
    ),
    "idle_timeout": (
        str,
        "When a terminal that nobody uses ends: 30m, 8h, 0 for never; default: 1h.",
        "--idle-timeout",
    ),
    "venv": (str, "Virtual environment that it runs in: a folder.", "--venv"),
    "conda": (str, "Conda environment that it runs in.", "--conda"),
    "uv": (str, "Folder with pyproject.toml, or requirements, that uv installs.", "--uv"),
    "secret": (list[str], "Variable whose value is never shown.", "--secret"),
    "checkpoint": (str, "Folder of its checkpoints.", "--checkpoint"),
    "grace_s": (float, "Seconds it has to save a checkpoint when asked to stop.", "--grace-s"),
    "cpus": (float, "CPU cores.", "--cpus"),
    "mem_gb": (float, "Memory in GB.", "--mem-gb"),
    "retries": (int, "How often it is started again after a failure.", "--retries"),
    "sweep": (
        list[str],
        "NAME=VALUE,VALUE,...: a job for each value, and each combination of several.",
        "--sweep",
    ),
    "array": (str, "A job for each number, as in Slurm: 0-9, 1-9:2, 0-9%4.", "--array"),
    "max_parallel": (int, "How many jobs of a sweep or app may run at once.", "--max-parallel"),
    "app": (str, "What it is a part of; `weft jobs APP` shows them together.", "--app"),
    "after_ok": (list[str], "Start it once this job has succeeded.", "--after-ok"),
    "after_any": (list[str], "Start it once this job has ended, in any way.", "--after-any"),
    "after_not_ok": (list[str], "Start it once this job has failed.", "--after-not-ok"),
    "job_id": (str, "An id of your choice; submitting it twice makes one job.", "--id"),
}

REPEATED = tuple(name for name, (kind, *_) in OPTIONS.items() if get_origin(kind) is list)


def takes_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` every option of a job; it gets them as its keyword `flags`."""

    @wraps(command)
    def asked(**typed: Any) -> None:
        values = {name: typed.pop(name) for name in OPTIONS}
        values |= {name: tuple(values[name] or ()) for name in REPEATED}
        command(flags=Flags(**values), **typed)

    own = signature(command, eval_str=True).parameters.values()
    parts = [part.replace(kind=KEYWORD) for part in own if part.name != "flags"]
    for name, (kind, text, *spellings) in OPTIONS.items():
        panel = next((title for title, held in PANELS.items() if name in held), PANEL)
        option = typer.Option(*spellings, help=text, rich_help_panel=panel)
        annotation: Any = Annotated[kind | None, option]
        parts.append(Parameter(name, KEYWORD, default=None, annotation=annotation))
    asked.__signature__ = Signature(parts)  # type: ignore[attr-defined]
    asked.__annotations__ = {part.name: part.annotation for part in parts}
    return asked
