"""Work that takes too much, for processes that work aside."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from weft.core.errors import InvalidConfig

Report = Callable[[Any], None]


def loop(_report: Report) -> None:
    while True:
        pass


def loop_in_c(_report: Report) -> int:
    return sum(range(10**13))


def fill_memory(_report: Report) -> int:
    return len(bytearray(8 << 30))


def make_a_mistake(_report: Report) -> None:
    raise KeyError("maybe")


def end_process(_report: Report) -> None:
    os._exit(3)


def complain(_report: Report) -> None:
    raise InvalidConfig("this is wrong", hint="do it right")


def count(report: Report) -> int:
    for number in range(3):
        report(number)
    return os.getpid()


def sample(space: dict[str, list[str]], *_: object) -> dict[str, str]:
    """A sampler that never finds the next trial in one space, and does in others."""
    while "slow" in space["x"]:
        pass
    return {"x": space["x"][0]}
