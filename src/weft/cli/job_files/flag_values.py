"""Values of a job as people type them: ranges, times, variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig

_SHORT = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


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


def merge_all(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Mappings in one, later ones in front."""
    return {key: value for part in parts for key, value in part.items()}


def read_env(path: Path) -> dict[str, str]:
    """`KEY=VALUE` lines; comments, `export` and quotes as in a shell, but nothing is expanded."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"cannot read the variables in {path}: {error}") from error
    variables: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InvalidConfig(f"{path}, line {number}: {text!r} is not KEY=VALUE")
        variables[key.strip()] = _unquote(value.strip())
    return variables


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


# Whole numbers as they are typed.

MOST_DIGITS = 18


def is_whole(text: str) -> bool:
    """Whether it is one that `int` reads: plain digits, and not thousands of them."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
