"""Options that say what a job is: the words of a job file, as flags."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from weft.cli.options.shared import panel
from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft_client import job_file
from weft_client.errors import Misused


def merge(body: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Two bodies, the second in front; mappings such as `env` are merged field by field."""
    both = {**body, **more}
    for field in set(body) & set(more):
        ours, theirs = body[field], more[field]
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and field != "gpus":
            both[field] = {**ours, **theirs}
    return both


def gpus_of(text: str) -> int | dict[str, int]:
    """`2`, or `1-4` and `1..4` for an elastic job."""
    parts = text.replace("..", "-").split("-")
    if len(parts) > 2 or not all(is_whole(part.strip()) for part in parts):
        raise InvalidConfig(
            f"--gpus {text[:60]!r} is not a number or a range",
            hint="--gpus 2, or --gpus 1-4: elastic",
        )
    if len(parts) == 1:
        return int(text)
    return {"min": int(parts[0]), "max": int(parts[1])}


def batch_of(text: str) -> dict[str, int]:
    """`128-4096`, or `128-4096:1024` with the most that fits on one GPU."""
    sizes, colon, most = text.partition(":")
    parts = sizes.replace("..", "-").split("-")
    numbers = [*parts, *([most] if colon else ())]
    if len(parts) != 2 or not all(is_whole(part.strip()) for part in numbers):
        raise InvalidConfig(
            f"--batch {text[:60]!r} is not FIRST-LARGEST",
            hint="--batch 128-4096, or --batch 128-4096:1024 with the most that fits on one GPU",
        )
    batch = {"init": int(parts[0]), "max": int(parts[1])}
    return {**batch, "max_per_gpu": int(most)} if colon else batch


def split_names(texts: Sequence[str]) -> list[str]:
    """Names that were given one by one, or several joined by commas."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def processes_of(text: str) -> int | str:
    """`1`, `per-gpu` or `auto`."""
    if text not in ("1", "per-gpu", "auto"):
        raise InvalidConfig(
            f"--processes {text!r} is not 1, per-gpu or auto",
            hint="1: once per node; per-gpu: once for each GPU",
        )
    return 1 if text == "1" else text


def share_of(text: str) -> str | float | dict[str, float]:
    """`allowed`, `never`, a part of one GPU, or `slowdown=1.3,memory_gb=20`."""
    if text in ("allowed", "never"):
        return text
    try:
        if "=" in text:
            pairs = (pair.partition("=") for pair in text.split(","))
            return {name.strip(): float(value) for name, _, value in pairs}
        part = float(text)
    except ValueError:
        part = 0.0
    if not 0.0 < part <= 1.0:
        raise InvalidConfig(
            f"--share {text!r} is not allowed, never or a part of one GPU",
            hint="--share 0.5, --share never or --share slowdown=1.3,memory_gb=20",
        )
    return part


def seconds_of(text: str) -> float:
    """`90`, `90s`, `30m`, `2h`, `1d`, `1:30:00` or `2-12:00:00` (days first)."""
    with misuse():
        return job_file.seconds_of(text)


def slurm_seconds_of(text: str) -> float:
    """A time limit as Slurm reads it, where a bare number is minutes."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    numbers = [float(part) for part in parts] if all(map(is_whole, parts)) else []
    if not numbers or len(numbers) > 3 or (dash and not is_whole(days)):
        raise InvalidConfig(
            f"--time={text[:60]} is not a time of Slurm's",
            hint="30 is 30 minutes; 1:30:00 and 2-12:00:00 work too",
        )
    if dash:
        hours, minutes, seconds = [*numbers, 0.0, 0.0][:3]
        return float(days) * 86_400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 3:
        return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0.0)


def tasks_of(text: str, gpus: int | dict[str, int] | None, nodes: int) -> int | str:
    """The `processes` of a job file that start this many tasks, as `-n` of Slurm says it."""
    if is_whole(text) and int(text) == nodes:
        return 1
    if is_whole(text) and int(text) == gpus:
        return "per-gpu"
    name = "" if is_whole(text) else f"; to name the job: --name {text[:60]}"
    raise InvalidConfig(
        f"-n {text[:60]} is neither one process for each GPU nor one for each node",
        hint=f"-n 4 --gpus 4 starts four; `--array 1-4` submits four jobs{name}",
    )


def _refuse_both(first: str, second: str, value: object) -> None:
    if value is not None:
        raise InvalidConfig(f"{first} and {second} are both given", hint="give one of them")


def idle_of(text: str) -> float:
    """A time as `seconds_of` reads it, or 0 for never."""
    with misuse():
        return job_file.idle_of(text)


@contextmanager
def misuse() -> Iterator[None]:
    """A mistake that weft-client finds, as one of the command line."""
    try:
        yield
    except Misused as error:
        raise InvalidConfig(error.what, hint=error.hint) from error


def pair_of(text: str) -> tuple[str, str]:
    """`KEY=VALUE`; a `KEY` alone takes the value it has here."""
    key, equals, value = text.partition("=")
    if not equals and key in os.environ:
        return key, os.environ[key]
    if not equals or not key:
        raise InvalidConfig(f"--env {text!r} is not KEY=VALUE", hint="--env DATA=/data")
    return key, value


# Whole numbers as they are typed.

MOST_DIGITS = 18


def is_whole(text: str) -> bool:
    """Return true if `int` reads the text: plain digits, and not thousands of them."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


JOB = panel("Job (the fields of a job file)")
ORDER = panel("Order, sweeps and arrays")
WHERE = panel("Where and how it runs")
TIME = panel("Time, failures and stops")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
MOST_TASKS = 100_000  # far more than any service takes; it says how many that is


@frozen
class Flags:
    """Options as typed; None or empty where nothing was."""

    name: Annotated[
        str | None, JOB("--name", "-J", help="What to call it; default: the script's name.")
    ] = None
    gpus: Annotated[
        str | None,
        JOB("--gpus", "-g", help="GPUs: a number, 0 for none, or 1-4 for an elastic job."),
    ] = None
    nodes: Annotated[
        int | None,
        JOB("--nodes", "-N", help="Exactly this many nodes, with the same number of GPUs on each."),
    ] = None
    gpus_per_node: Annotated[
        int | None, JOB("--gpus-per-node", help="GPUs on each node, instead of --gpus.", min=0)
    ] = None
    tasks: Annotated[
        str | None,
        JOB("-n", help="As in Slurm, how many processes: one for each GPU, or one for each node."),
    ] = None
    kinds: Annotated[
        str | None, JOB("--kinds", help="Kinds of GPU that will do, joined by commas.")
    ] = None
    batch: Annotated[
        str | None,
        JOB("--batch", help="Batch sizes it may train with: FIRST-LARGEST, and :MOST for one GPU."),
    ] = None
    processes: Annotated[
        str | None, WHERE("--processes", help="Processes per node: 1, per-gpu, or auto.")
    ] = None
    share: Annotated[
        str | None,
        JOB(
            "--share",
            help="Share GPUs: allowed, never, slowdown=1.3,memory_gb=20, or a fraction of one "
            "GPU: 0.5.",
        ),
    ] = None
    no_share: Annotated[bool | None, JOB("--no-share", help="The same as --share never.")] = None
    tenant: Annotated[
        str | None, JOB("--tenant", help="The tenant whose quota it counts against.")
    ] = None
    priority: Annotated[
        str | None, JOB("--priority", help="guaranteed, normal, spot or opportunistic.")
    ] = None
    plans: Annotated[
        str | None,
        JOB("--plans", help="Execution plans that it can run, its own first: dp,zero2,tp2-gc."),
    ] = None
    workdir: Annotated[
        Path | None, WHERE("--workdir", help="Folder it runs in; default: the current folder.")
    ] = None
    env: Annotated[
        Sequence[str],
        WHERE(
            "--env",
            "-e",
            help="Set a variable: KEY=VALUE; KEY alone copies its value from this shell.",
        ),
    ] = ()
    env_file: Annotated[
        Sequence[Path], WHERE("--env-file", help="File of KEY=VALUE lines to set as variables.")
    ] = ()
    time_limit: Annotated[
        str | None, TIME("--time-limit", help="How long it may run: 90s, 30m, 2h, 1-12:00:00.")
    ] = None
    time: Annotated[
        str | None,
        TIME("--time", help="The time limit as in Slurm: 30 is 30 minutes; 2h works too."),
    ] = None
    deadline: Annotated[
        str | None,
        TIME(
            "--deadline",
            help="How soon it should be done: 30m, 8h, 2d. A missed deadline is reported.",
        ),
    ] = None
    deadline_or: Annotated[
        str | None,
        TIME(
            "--deadline-or",
            help="If the deadline cannot be promised: decline the job, or run it late and warn.",
        ),
    ] = None
    idle_timeout: Annotated[
        str | None,
        TIME(
            "--idle-timeout",
            help="End an unused terminal after 30m, 8h, ...; 0: never; default: 1h.",
        ),
    ] = None
    venv: Annotated[
        str | None, WHERE("--venv", help="Virtual environment that it runs in: a folder.")
    ] = None
    conda: Annotated[str | None, WHERE("--conda", help="Conda environment that it runs in.")] = None
    uv: Annotated[
        str | None,
        WHERE("--uv", help="Folder with pyproject.toml, or requirements, that uv installs."),
    ] = None
    secret: Annotated[
        Sequence[str], WHERE("--secret", help="Variable whose value is never shown.")
    ] = ()
    checkpoint: Annotated[
        str | None, TIME("--checkpoint", help="Folder of its checkpoints, or s3://bucket/folder.")
    ] = None
    grace_s: Annotated[
        float | None,
        TIME("--grace-s", help="Seconds it has to save a checkpoint when asked to stop."),
    ] = None
    cpus: Annotated[float | None, JOB("--cpus", help="CPU cores.")] = None
    mem_gb: Annotated[float | None, JOB("--mem-gb", help="Memory in GB.")] = None
    retries: Annotated[
        int | None, TIME("--retries", help="How many times to start it again after a failure.")
    ] = None
    sweep: Annotated[
        Sequence[str],
        ORDER(
            "--sweep",
            help="NAME=VALUE,VALUE,...: a job for each value, and each combination of several.",
        ),
    ] = ()
    array: Annotated[
        str | None, ORDER("--array", help="A job for each number, as in Slurm: 0-9, 1-9:2, 0-9%4.")
    ] = None
    max_parallel: Annotated[
        int | None, ORDER("--max-parallel", help="How many jobs of a sweep or app may run at once.")
    ] = None
    app: Annotated[
        str | None,
        ORDER("--app", help="The app it belongs to; `weft jobs APP` lists the app's jobs."),
    ] = None
    notify: Annotated[
        Sequence[str],
        ORDER("--notify", help="Say when it ends, by mail, slack or webhook, as an admin allows."),
    ] = ()
    after_ok: Annotated[
        Sequence[str], ORDER("--after-ok", help="Start it once this job has succeeded.")
    ] = ()
    after_any: Annotated[
        Sequence[str], ORDER("--after-any", help="Start it once this job has ended, in any way.")
    ] = ()
    after_not_ok: Annotated[
        Sequence[str], ORDER("--after-not-ok", help="Start it once this job has failed.")
    ] = ()
    job_id: Annotated[
        str | None, JOB("--id", help="An id of your choice; submitting it twice makes one job.")
    ] = None

    def body(self) -> dict[str, Any]:
        """The fields of a job file that these flags set."""
        fields: dict[str, Any] = {
            "id": self.job_id,
            "name": self.name,
            "gpus": self._gpus(),
            "nodes": self.nodes,
            "kinds": None if self.kinds is None else self.kinds.replace(",", " ").split(),
            "batch": None if self.batch is None else batch_of(self.batch),
            "processes": self._processes(),
            "share": self._share(),
            "tenant": self.tenant,
            "priority": self.priority,
            "plans": None if self.plans is None else self.plans.replace(",", " ").split(),
            "workdir": None if self.workdir is None else str(self.workdir.absolute()),
            "checkpoint": self._checkpoint(),
            "env": self._env() or None,
            "time_limit_s": self._time_limit_s(),
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
            "notify": split_names(self.notify) or None,
            "max_parallel": self.max_parallel,
        }
        more = sweep_of(self.sweep, self.array)
        return merge(more, {field: value for field, value in fields.items() if value is not None})

    def _gpus(self) -> int | dict[str, int] | None:
        if self.gpus_per_node is None:
            return None if self.gpus is None else gpus_of(self.gpus)
        _refuse_both("--gpus-per-node", "--gpus", self.gpus)
        return self.gpus_per_node * (1 if self.nodes is None else self.nodes)

    def _processes(self) -> int | str | None:
        if self.tasks is None:
            return None if self.processes is None else processes_of(self.processes)
        _refuse_both("-n", "--processes", self.processes)
        return tasks_of(self.tasks, self._gpus(), self.nodes or 1)

    def _time_limit_s(self) -> float | None:
        if self.time is None:
            return None if self.time_limit is None else seconds_of(self.time_limit)
        _refuse_both("--time", "--time-limit", self.time_limit)
        with_unit = self.time[-1:].isalpha()
        return seconds_of(self.time) if with_unit else slurm_seconds_of(self.time)

    def _env(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        with misuse():
            for path in self.env_file:
                variables |= job_file.read_env(path)
        return {**variables, **dict(pair_of(text) for text in self.env)}

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


# ---- Sweeps and arrays from flags, in the words of a job file


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
