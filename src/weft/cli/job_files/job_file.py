"""A job as the service takes it, from a file, from flags, or from both: flags win.

What fields there are, and which values they take, is the service's to say: it answers an unknown
field with the closest one it knows. Here is only what a client alone can know: where the file
lies, and which folder and variables the command was typed with.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.cli.job_files import sbatch, skypilot
from weft.cli.job_files.sweep_flags import sweep_of
from weft.cli.job_files.whole_numbers import is_whole
from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig

# What decides which Python `python` is; a job of `weft run` uses the one that its person uses.
_SHORT = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
FILES = (".yaml", ".yml", ".json")
INTERPRETERS = {".py": "python ", ".sh": "bash ", ".sbatch": "bash ", ".slurm": "bash "}
SHELL = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")


Remark = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Flags:
    """What was typed; None or empty where nothing was."""

    name: str | None = None
    gpus: str | None = None
    nodes: int | None = None
    kinds: str | None = None
    batch: str | None = None
    processes: str | None = None
    share: str | None = None
    no_share: bool | None = None
    tenant: str | None = None
    priority: str | None = None
    workdir: Path | None = None
    env: Sequence[str] = ()
    env_file: Sequence[Path] = ()
    time_limit: str | None = None
    deadline: str | None = None
    idle_timeout: str | None = None
    venv: str | None = None
    conda: str | None = None
    uv: str | None = None
    secret: Sequence[str] = ()
    checkpoint: str | None = None
    grace_s: float | None = None
    cpus: float | None = None
    mem_gb: float | None = None
    retries: int | None = None
    sweep: Sequence[str] = ()
    array: str | None = None
    max_parallel: int | None = None
    app: str | None = None
    after_ok: Sequence[str] = ()
    after_any: Sequence[str] = ()
    after_not_ok: Sequence[str] = ()
    job_id: str | None = None

    def body(self) -> dict[str, Any]:
        """The fields of a job file that these flags set."""
        said: dict[str, Any] = {
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
            "workdir": None if self.workdir is None else str(self.workdir.absolute()),
            "checkpoint": self._checkpoint(),
            "env": self._env() or None,
            "time_limit_s": None if self.time_limit is None else seconds_of(self.time_limit),
            "deadline_s": None if self.deadline is None else seconds_of(self.deadline),
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
        return merge(more, {field: value for field, value in said.items() if value is not None})

    def _env(self) -> dict[str, str]:
        files = (read_env(path) for path in self.env_file)
        return {**merge_all(files), **dict(pair_of(text) for text in self.env)}

    def _share(self) -> str | float | dict[str, float] | None:
        if self.no_share:
            return "never"
        return None if self.share is None else share_of(self.share)

    def _after(self) -> dict[str, list[str]]:
        said = {"ok": self.after_ok, "any": self.after_any, "not_ok": self.after_not_ok}
        return {how: split_names(names) for how, names in said.items() if names}

    def _environment(self) -> dict[str, str]:
        said = {"venv": self.venv, "conda": self.conda, "uv": self.uv}
        return {kind: name for kind, name in said.items() if name is not None}

    def _checkpoint(self) -> dict[str, Any] | None:
        said = {"dir": self.checkpoint, "grace_s": self.grace_s}
        return {field: value for field, value in said.items() if value is not None} or None


def from_file(path: Path, flags: Flags, remark: Remark = lambda _: None) -> dict[str, Any]:
    """A job file's fields; its `workdir` counts from the folder that the file lies in.

    Also of a SkyPilot task; `remark` is told what is passed over of it.
    """
    body = read_file(path)
    if skypilot.is_skypilot(body):
        body, remarks = skypilot.read_skypilot(body, path)
        for text in remarks:
            remark(f"{path}: {text}")
    here = path.absolute().parent
    workdir = body.get("workdir", ".")
    if isinstance(workdir, str):
        body["workdir"] = os.path.normpath(here / Path(workdir).expanduser())
    if "name" not in body:
        body["name"] = path.stem
    if isinstance(body.get("command"), str):
        body["command"] = split(body["command"], path)
    take_client_fields(body, here)
    return merge(body, flags.body())


def from_sbatch(
    path: Path, arguments: Sequence[str], flags: Flags, remark: Remark
) -> dict[str, Any]:
    """A Slurm script's fields; `remark` is told what is passed over of its header."""
    body, remarks = sbatch.read_sbatch(path, arguments)
    for text in remarks:
        remark(f"{path}: {text}")
    body = merge(body, flags.body())
    if "gpus" not in body:
        remark(f"{path}: it asks for no GPU, so it runs on CPUs alone; --gpus 1 gives it one")
        body["gpus"] = 0
    return body


def take_client_fields(body: dict[str, Any], here: Path) -> None:
    """Replace what only a client can read: files of variables, and times as people write them."""
    files = body.pop("env_file", ())
    if files:
        names = [files] if isinstance(files, str) else files
        read = merge_all(read_env(here / Path(str(name)).expanduser()) for name in names)
        own = body.get("env", {})
        body["env"] = {**read, **own} if isinstance(own, Mapping) else own
    for field in ("time_limit", "warn", "deadline"):
        if field in body:
            body[f"{field}_s"] = seconds_of(str(body.pop(field)))
    if "idle_timeout" in body:
        body["idle_timeout_s"] = idle_of(str(body.pop("idle_timeout")))


def from_command(
    command: Sequence[str], flags: Flags, around: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A job of this command in the present folder, or in the one the flags name.

    `around` is the environment it was typed in; what decides which Python is used goes along.
    """
    check_program(command, Path.cwd() if flags.workdir is None else flags.workdir)
    body: dict[str, Any] = {
        "name": name_of(command),
        "command": list(command),
        "workdir": str(Path.cwd()),
    }
    shell = {name: around[name] for name in SHELL if around and around.get(name)}
    if shell:
        body["env"] = shell
    return merge(body, flags.body())


def check_program(command: Sequence[str], workdir: Path) -> None:
    """Refuse a file that is neither a job file nor a program, and numbers that went astray."""
    word = command[0]
    if word.replace(".", "", 1).isdigit():
        raise InvalidConfig(
            f"the command begins with {word}", hint="an option before it takes no value"
        )
    path = workdir / word
    runs = os.access(path, os.X_OK) if "/" in word else shutil.which(word) is not None
    if runs or not path.is_file():
        return
    rest = " ".join(shlex.quote(one) for one in command)
    with_it = INTERPRETERS.get(path.suffix, f"chmod +x {shlex.quote(word)} and ./")
    raise InvalidConfig(
        f"{word} is no job file and no program",
        hint=f"to run it: weft submit -- {with_it}{rest}; job files end with {', '.join(FILES)}",
    )


def merge(body: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Two bodies, the second in front; mappings such as `env` are merged field by field."""
    both = {**body, **more}
    for field in set(body) & set(more):
        ours, theirs = body[field], more[field]
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and field != "gpus":
            both[field] = {**ours, **theirs}
    return both


def read_file(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidConfig(
            f"cannot read {path}: {why}", hint="give a job file, as in docs/how-to/job-files.md"
        ) from error
    body = parse_yaml(text, str(path))
    if not isinstance(body, dict):
        content = "nothing" if body is None else type(body).__name__
        raise InvalidConfig(
            f"{path}: found {content}, expected fields",
            hint="at least `command: [python, train.py]`, or `run: |` and lines for a shell",
        )
    return {str(field): value for field, value in body.items()}


def split(command: str, path: Path) -> list[str]:
    """The words of a command that was written as one text; no shell ever reads it."""
    return words_of(command, f"{path}: command", "write it as a list: [python, train.py]")


def words_of(command: str, where: str, hint: str = "close its quotes") -> list[str]:
    """The words of a command; raises InvalidConfig naming `where` it was written."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidConfig(f"{where}: {error}", hint=hint) from error
    if not words:
        raise InvalidConfig(f"{where}: there is no command", hint="name a program to run")
    return words


def name_of(command: Sequence[str]) -> str:
    """A name from a command: the script's where there is one, else the program's."""
    scripts = [Path(word).stem for word in command[1:] if word.endswith((".py", ".sh"))]
    return (scripts or [Path(command[0]).name])[0]


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
    said = {"init": int(parts[0]), "max": int(parts[1])}
    return {**said, "max_per_gpu": int(most)} if colon else said


def split_names(texts: Sequence[str]) -> list[str]:
    """Names that were given one by one, or several joined by commas."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def processes_of(text: str) -> int | str:
    """`1`, `per-gpu` or `auto`."""
    if text not in ("1", "per-gpu", "auto"):
        raise InvalidConfig(
            f"--processes {text!r} is not 1, per-gpu or auto",
            hint="1: once a node; per-gpu: once for each GPU",
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


def merge_all(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Mappings in one, later ones in front."""
    return {key: value for part in parts for key, value in part.items()}


def read_env(path: Path) -> dict[str, str]:
    """`KEY=VALUE` lines; comments, `export` and quotes as in a shell, but nothing is expanded."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"cannot read the variables in {path}: {error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InvalidConfig(f"{path}, line {number}: {text!r} is not KEY=VALUE")
        found[key.strip()] = _unquote(value.strip())
    return found


def _unquote(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value.partition(" #")[0].rstrip()


def seconds_of(text: str) -> float:
    """`90`, `90s`, `30m`, `2h`, `1d`, `1:30:00` or `2-12:00:00` (days first)."""
    if short := _SHORT.fullmatch(text.strip()):
        seconds = float(short[1]) * UNITS[short[2]]
    elif clock := _CLOCK.fullmatch(text.strip()):
        days, hours, minutes, rest = (float(part or 0) for part in clock.groups())
        seconds = days * 86_400 + hours * 3600 + minutes * 60 + rest
    else:
        seconds = 0.0
    if seconds <= 0.0:
        raise InvalidConfig(
            f"{text!r} is not a time", hint="90s, 30m, 2h, 1d, 1:30:00 or 2-12:00:00"
        )
    return seconds


def idle_of(text: str) -> float:
    """A time as `seconds_of` reads it, or 0 for never."""
    return 0.0 if text.strip() in ("0", "never") else seconds_of(text)


def pair_of(text: str) -> tuple[str, str]:
    """`KEY=VALUE`; a `KEY` alone takes the value it has here."""
    key, equals, value = text.partition("=")
    if not equals and key in os.environ:
        return key, os.environ[key]
    if not equals or not key:
        raise InvalidConfig(f"--env {text!r} is not KEY=VALUE", hint="--env DATA=/data")
    return key, value
