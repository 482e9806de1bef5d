"""A job as the service takes it, from a file, from flags, or from both: flags win.

What fields there are, and which values they take, is the service's to say: it answers an unknown
field with the closest one it knows. Here is only what a client alone can know: where the file
lies, and which folder and variables the command was typed with.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.cli.job_files import sbatch, skypilot
from weft.cli.job_files.job_options import Flags, merge, misuse
from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig
from weft_client.job_file import complete

# What decides which Python `python` is; a job of `weft run` uses the one that its person uses.
FILES = (".yaml", ".yml", ".json")
INTERPRETERS = {".py": "python ", ".sh": "bash ", ".sbatch": "bash ", ".slurm": "bash "}
SHELL = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")


Remark = Callable[[str], None]


def from_file(path: Path, flags: Flags, remark: Remark = lambda _: None) -> dict[str, Any]:
    """A job file's fields; its `workdir` counts from the folder that the file lies in.

    Also of a SkyPilot task; `remark` gets what is ignored of it.
    """
    body = read_file(path)
    if skypilot.is_skypilot(body):
        body, remarks = skypilot.read_skypilot(body, path)
        for text in remarks:
            remark(f"{path}: {text}")
    with misuse():
        complete(body, path)
    return merge(body, flags.body())


def from_sbatch(
    path: Path, arguments: Sequence[str], flags: Flags, remark: Remark
) -> dict[str, Any]:
    """A Slurm script's fields; `remark` gets what is ignored of its header."""
    body, remarks = sbatch.read_sbatch(path, arguments)
    for text in remarks:
        remark(f"{path}: {text}")
    body = merge(body, flags.body())
    if "gpus" not in body:
        remark(f"{path}: it asks for no GPU, so it runs on CPUs alone; --gpus 1 gives it one")
        body["gpus"] = 0
    return body


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
    """Refuse what is no program for certain: other files, lines for a shell, stray numbers."""
    word = command[0]
    if word.replace(".", "", 1).isdigit():
        raise InvalidConfig(
            f"the command begins with {word}", hint="an option before it takes no value"
        )
    path = workdir / word
    runs = os.access(path, os.X_OK) if "/" in word else shutil.which(word) is not None
    if len(command) == 1 and not path.exists() and not runs and len(word.split()) > 1:
        raise InvalidConfig(
            f"{word[:60]!r} is one word, and no program is called so",
            hint=f"leave the quotes out, or let a shell read it: -- sh -c {shlex.quote(word[:60])}",
        )
    if runs or not path.is_file():
        return
    rest = " ".join(shlex.quote(word) for word in command)
    made = ""
    if path.suffix not in INTERPRETERS:
        made, rest = f"chmod +x {shlex.quote(word)}, then ", rest if "/" in word else f"./{rest}"
    with_it = INTERPRETERS.get(path.suffix, "")
    raise InvalidConfig(
        f"{word} is neither a job file nor a program",
        hint=f"to run it: {made}weft submit -- {with_it}{rest}; "
        f"job files end with {', '.join(FILES)}",
    )


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
