"""The parts of a job file that only a client can read: files of variables, times as written.

All other fields are the service's to check.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft_client.errors import Misused

_SHORT = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def complete(body: dict[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a job file that lies at `path`, as the service takes them.

    Its `workdir` counts from the folder that the file lies in.
    """
    here = path.absolute().parent
    workdir = body.get("workdir", ".")
    if isinstance(workdir, str):
        body["workdir"] = os.path.normpath(here / expand(workdir))
    if "name" not in body:
        body["name"] = path.stem
    if isinstance(body.get("command"), str):
        body["command"] = _split(body["command"], path)
    take_client_fields(body, here)
    return body


def take_client_fields(body: dict[str, Any], here: Path) -> None:
    """Replace files of variables, and times as people write them."""
    files = body.pop("env_file", ())
    if files:
        read: dict[str, str] = {}
        for name in [files] if isinstance(files, str) else files:
            read |= read_env(here / expand(str(name)))
        own = body.get("env", {})
        body["env"] = {**read, **own} if isinstance(own, Mapping) else own
    if isinstance(due := body.get("deadline"), Mapping):
        body["deadline"] = due.get("by", "")
        body["deadline_or"] = due.get("or", "decline")
    for field in ("time_limit", "warn", "deadline"):
        if field in body:
            body[f"{field}_s"] = seconds_of(str(body.pop(field)))
    if "idle_timeout" in body:
        body["idle_timeout_s"] = idle_of(str(body.pop("idle_timeout")))


def expand(text: str | Path) -> Path:
    """A path with `~` in the place of a home folder; that of an unknown user stays as it is."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - expanduser of Path raises there


def _split(command: str, path: Path) -> list[str]:
    """The words of a command that was written as one text; no shell ever reads it."""
    hint = "write it as a list: [python, train.py]"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Misused(f"{path}: command: {error}", hint=hint) from error
    if not words:
        raise Misused(f"{path}: command: there is no command", hint="name a program to run")
    return words


def read_env(path: Path) -> dict[str, str]:
    """`KEY=VALUE` lines; comments, `export` and quotes as in a shell, but nothing is expanded."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Misused(f"cannot read the variables in {path}: {error}") from error
    variables: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise Misused(f"{path}, line {number}: {text!r} is not KEY=VALUE")
        variables[key.strip()] = _unquote(value.strip())
    return variables


def _unquote(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value.partition(" #")[0].rstrip()


def seconds_of(text: str) -> float:
    """`90`, `90s`, `30m`, `2h`, `1d`, `1:30:00` or `2-12:00:00` (days first)."""
    if short := _SHORT.fullmatch(text.strip()):
        seconds = float(short[1]) * _UNITS[short[2]]
    elif clock := _CLOCK.fullmatch(text.strip()):
        days, hours, minutes, rest = (float(part or 0) for part in clock.groups())
        seconds = days * 86_400 + hours * 3600 + minutes * 60 + rest
    else:
        seconds = 0.0
    if seconds <= 0.0:
        raise Misused(f"{text!r} is not a time", hint="90s, 30m, 2h, 1d, 1:30:00 or 2-12:00:00")
    return seconds


def idle_of(text: str) -> float:
    """A time as `seconds_of` reads it, or 0 for never."""
    return 0.0 if text.strip() in ("0", "never") else seconds_of(text)
