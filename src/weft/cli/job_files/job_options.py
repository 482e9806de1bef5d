"""Options that say what a job is: the words of a job file, as flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.job_files.flag_values import (
    batch_of,
    gpus_of,
    idle_of,
    merge,
    merge_all,
    pair_of,
    processes_of,
    read_env,
    seconds_of,
    share_of,
    split_names,
)
from weft.cli.job_files.sweep_flags import sweep_of
from weft.frozen import frozen

JOB = "Job (the fields of a job file)"
ORDER = "Order, sweeps and arrays"
WHERE = "Where and as what it runs"
TIME = "Time, failures and stops"


@frozen
class Flags:
    """What was typed; None or empty where nothing was."""

    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="What to call it; default: the script's name.", rich_help_panel=JOB
        ),
    ] = None
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            "-g",
            help="GPUs: a number, 0 for none, or 1-4 for an elastic job.",
            rich_help_panel=JOB,
        ),
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            help="Nodes: exactly so many, with the same number of GPUs on each.",
            rich_help_panel=JOB,
        ),
    ] = None
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds", help="Kinds of GPU that will do, joined by commas.", rich_help_panel=JOB
        ),
    ] = None
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            help="Batch sizes it may train with: FIRST-LARGEST, and :MOST for one GPU.",
            rich_help_panel=JOB,
        ),
    ] = None
    processes: Annotated[
        str | None,
        typer.Option(
            "--processes", help="Processes: 1 a node, per-gpu, or auto.", rich_help_panel=WHERE
        ),
    ] = None
    share: Annotated[
        str | None,
        typer.Option(
            "--share",
            help="allowed, never, slowdown=1.3,memory_gb=20, or a part of one GPU: 0.5.",
            rich_help_panel=JOB,
        ),
    ] = None
    no_share: Annotated[
        bool | None,
        typer.Option("--no-share", help="The same as --share never.", rich_help_panel=JOB),
    ] = None
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant", help="The tenant whose quota it counts against.", rich_help_panel=JOB
        ),
    ] = None
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority", help="guaranteed, normal, spot or opportunistic.", rich_help_panel=JOB
        ),
    ] = None
    plans: Annotated[
        str | None,
        typer.Option(
            "--plans",
            help="Execution plans that it can run, its own first: dp,zero2,tp2-gc.",
            rich_help_panel=JOB,
        ),
    ] = None
    workdir: Annotated[
        Path | None,
        typer.Option(
            "--workdir",
            help="Folder it runs in; default: the current folder.",
            rich_help_panel=WHERE,
        ),
    ] = None
    env: Annotated[
        Sequence[str],
        typer.Option(
            "--env",
            "-e",
            help="KEY=VALUE for it; KEY alone takes the value it has here.",
            rich_help_panel=WHERE,
        ),
    ] = ()
    env_file: Annotated[
        Sequence[Path],
        typer.Option("--env-file", help="File of KEY=VALUE lines for it.", rich_help_panel=WHERE),
    ] = ()
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            help="How long it may run: 90s, 30m, 2h, 1-12:00:00.",
            rich_help_panel=TIME,
        ),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            help="How soon it should be done: 30m, 8h, 2d; reported if missed.",
            rich_help_panel=TIME,
        ),
    ] = None
    deadline_or: Annotated[
        str | None,
        typer.Option(
            "--deadline-or",
            help="If the deadline cannot be promised: decline the job, or run it late and warn.",
            rich_help_panel=TIME,
        ),
    ] = None
    idle_timeout: Annotated[
        str | None,
        typer.Option(
            "--idle-timeout",
            help="When a terminal that nobody uses ends: 30m, 8h, 0 for never; default: 1h.",
            rich_help_panel=TIME,
        ),
    ] = None
    venv: Annotated[
        str | None,
        typer.Option(
            "--venv", help="Virtual environment that it runs in: a folder.", rich_help_panel=WHERE
        ),
    ] = None
    conda: Annotated[
        str | None,
        typer.Option("--conda", help="Conda environment that it runs in.", rich_help_panel=WHERE),
    ] = None
    uv: Annotated[
        str | None,
        typer.Option(
            "--uv",
            help="Folder with pyproject.toml, or requirements, that uv installs.",
            rich_help_panel=WHERE,
        ),
    ] = None
    secret: Annotated[
        Sequence[str],
        typer.Option(
            "--secret", help="Variable whose value is never shown.", rich_help_panel=WHERE
        ),
    ] = ()
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            help="Folder of its checkpoints, or s3://bucket/folder.",
            rich_help_panel=TIME,
        ),
    ] = None
    grace_s: Annotated[
        float | None,
        typer.Option(
            "--grace-s",
            help="Seconds it has to save a checkpoint when asked to stop.",
            rich_help_panel=TIME,
        ),
    ] = None
    cpus: Annotated[
        float | None, typer.Option("--cpus", help="CPU cores.", rich_help_panel=JOB)
    ] = None
    mem_gb: Annotated[
        float | None, typer.Option("--mem-gb", help="Memory in GB.", rich_help_panel=JOB)
    ] = None
    retries: Annotated[
        int | None,
        typer.Option(
            "--retries", help="How often it is started again after a failure.", rich_help_panel=TIME
        ),
    ] = None
    sweep: Annotated[
        Sequence[str],
        typer.Option(
            "--sweep",
            help="NAME=VALUE,VALUE,...: a job for each value, and each combination of several.",
            rich_help_panel=ORDER,
        ),
    ] = ()
    array: Annotated[
        str | None,
        typer.Option(
            "--array",
            help="A job for each number, as in Slurm: 0-9, 1-9:2, 0-9%4.",
            rich_help_panel=ORDER,
        ),
    ] = None
    max_parallel: Annotated[
        int | None,
        typer.Option(
            "--max-parallel",
            help="How many jobs of a sweep or app may run at once.",
            rich_help_panel=ORDER,
        ),
    ] = None
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            help="What it is a part of; `weft jobs APP` shows them together.",
            rich_help_panel=ORDER,
        ),
    ] = None
    after_ok: Annotated[
        Sequence[str],
        typer.Option(
            "--after-ok", help="Start it once this job has succeeded.", rich_help_panel=ORDER
        ),
    ] = ()
    after_any: Annotated[
        Sequence[str],
        typer.Option(
            "--after-any",
            help="Start it once this job has ended, in any way.",
            rich_help_panel=ORDER,
        ),
    ] = ()
    after_not_ok: Annotated[
        Sequence[str],
        typer.Option(
            "--after-not-ok", help="Start it once this job has failed.", rich_help_panel=ORDER
        ),
    ] = ()
    job_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="An id of your choice; submitting it twice makes one job.",
            rich_help_panel=JOB,
        ),
    ] = None

    def body(self) -> dict[str, Any]:
        """The fields of a job file that these flags set."""
        fields: dict[str, Any] = {
            "id": self.job_id,
            "name": self.name,
            "gpus": None if self.gpus is None else gpus_of(self.gpus),
            "nodes": self.nodes,
            "kinds": None if self.kinds is None else self.kinds.replace(",", " ").split(),
            "batch": None if self.batch is None else batch_of(self.batch),
            "processes": None if self.processes is None else processes_of(self.processes),
            "share": self._share(),
            "tenant": self.tenant,
            "priority": self.priority,
            "plans": None if self.plans is None else self.plans.replace(",", " ").split(),
            "workdir": None if self.workdir is None else str(self.workdir.absolute()),
            "checkpoint": self._checkpoint(),
            "env": self._env() or None,
            "time_limit_s": None if self.time_limit is None else seconds_of(self.time_limit),
            "deadline_s": None if self.deadline is None else seconds_of(self.deadline),
            "deadline_or": self.deadline_or,
            "cpus": self.cpus,
            "mem_gb": self.mem_gb,
            "retries": self.retries,
            "after": self._after() or None,
            "idle_timeout_s": None if self.idle_timeout is None else idle_of(self.idle_timeout),
            "environment": self._environment() or None,
            "secrets": split_names(self.secret) or None,
            "app": self.app,
            "max_parallel": self.max_parallel,
        }
        more = sweep_of(self.sweep, self.array)
        return merge(more, {field: value for field, value in fields.items() if value is not None})

    def _env(self) -> dict[str, str]:
        files = (read_env(path) for path in self.env_file)
        return {**merge_all(files), **dict(pair_of(text) for text in self.env)}

    def _share(self) -> str | float | dict[str, float] | None:
        if self.no_share:
            return "never"
        return None if self.share is None else share_of(self.share)

    def _after(self) -> dict[str, list[str]]:
        names_by_end = {"ok": self.after_ok, "any": self.after_any, "not_ok": self.after_not_ok}
        return {how: split_names(names) for how, names in names_by_end.items() if names}

    def _environment(self) -> dict[str, str]:
        names_by_kind = {"venv": self.venv, "conda": self.conda, "uv": self.uv}
        return {kind: name for kind, name in names_by_kind.items() if name is not None}

    def _checkpoint(self) -> dict[str, Any] | None:
        fields = {"dir": self.checkpoint, "grace_s": self.grace_s}
        return {field: value for field, value in fields.items() if value is not None} or None
