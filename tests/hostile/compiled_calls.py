"""Calls compiled functions with arguments that nobody should give them.

    python -m tests.hostile.compiled_calls SEED COUNT

A twin in Python that refuses has a compiled one that does. Whatever is given, neither runs for
ever, and nothing is raised that only the interpreter itself may raise.
"""

from __future__ import annotations

import copy
import random
import resource
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tests.twins.twins  # noqa: F401 - declares them
from weft.core.state.cells import TableColumns
from weft.native import TWINS

CPU_S = 120  # far more than all of it takes: something that never ends is ended by the kernel
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-12, 1e308, -1e308, np.nan, np.inf, -np.inf, 0.5, 3.0]
COLUMNS = len([name for name in vars(TableColumns) if name.isupper()])


class Odd:
    """An object that runs code of its own where a number is wanted."""

    def __float__(self) -> float:
        return sum([0.5])

    def __index__(self) -> int:
        raise ValueError("no number")


def draw_junk(rng: random.Random) -> Any:
    """Anything at all."""
    shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
    pool: list[Callable[[], Any]] = [
        lambda: None,
        lambda: rng.choice(SPECIAL),
        lambda: rng.choice([0, 1, -1, 2**70, -(2**70), True]),
        lambda: rng.choice(["", "text", b"bytes", Odd(), (), [], {}, object]),
        lambda: np.array([rng.choice(SPECIAL) for _ in range(4)]),
        lambda: np.zeros(shape, dtype=rng.choice(["f8", "f4", "i8", "u1", "O", "c16", "?"])),
        lambda: np.zeros((COLUMNS, 3))[:, :: rng.choice([1, 2, -1])],
        lambda: tuple(draw_junk(rng) for _ in range(rng.randrange(3))),
        lambda: [draw_junk(rng) for _ in range(rng.randrange(3))],
    ]
    return rng.choice(pool)()


def draw_program(rng: random.Random) -> list[Any]:
    """A program of a few jobs at prices."""
    jobs, sizes, kinds = rng.randrange(5), rng.randrange(1, 4), rng.randrange(1, 3)
    value = np.array([[rng.random() * 4 for _ in range(sizes)] for _ in range(jobs)])
    kind = np.array([rng.randrange(kinds) for _ in range(sizes)], dtype=np.intp)
    count = np.array([float(rng.randrange(1, 9)) for _ in range(sizes)])
    room = np.array([float(rng.randrange(12)) for _ in range(kinds)])
    return [value.reshape(jobs, sizes), kind, count, room, np.full(kinds, 0.25)]


def draw_row(rng: random.Random) -> list[Any]:
    """The cells of a table, and one of its rows."""
    return [np.ones((COLUMNS, 4)), rng.randrange(4)]


SOUND: dict[str, Callable[[random.Random], list[Any]]] = {
    "take_freely": lambda rng: draw_program(rng)[:4],
    "take_at_prices": lambda rng: [*draw_program(rng), rng.randrange(9)],
    "close_exactly": lambda rng: [*draw_program(rng), rng.random(), 9000.0],
    "hold": lambda rng: [*draw_row(rng), 2.0, 1.0],
    "switch_on": lambda rng: [*draw_row(rng), 5.0, 2.0],
    "switch_off": lambda rng: [*draw_row(rng), 5.0],
    "read_row_meters": lambda rng: [*draw_row(rng), 5.0],
    "write_row": lambda rng: [*draw_row(rng), tuple(float(n) for n in range(COLUMNS))],
}


def spoil(rng: random.Random, arguments: list[Any]) -> list[Any]:
    """The arguments with a number or two in them that are unusual."""
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(arguments))
        if isinstance(arguments[at], np.ndarray) and arguments[at].size:
            if arguments[at].dtype.kind == "f":
                arguments[at].flat[rng.randrange(arguments[at].size)] = rng.choice(SPECIAL)
        elif isinstance(arguments[at], float):
            arguments[at] = rng.choice([*SPECIAL, "text", None])
    return arguments


def answer(function: Callable[..., Any], arguments: list[Any]) -> tuple[bool, Any]:
    """Return True with the answer, or False with the error."""
    try:
        return True, (repr(function(*arguments)), repr(arguments[:1]))
    except SystemError:
        raise
    except Exception as error:
        return False, error


def main(seed: int, count: int) -> int:
    """Make the calls; the number of those that went wrong."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    np.seterr(all="ignore")
    wrong = 0
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        name = rng.choice([*TWINS, *SOUND])
        python, compiled = TWINS[name]
        sys.stderr.write(f"\r{name} {number}")  # the last of them, where it does not return
        junk = [draw_junk(rng) for _ in range(rng.randrange(9))]
        answer(compiled, junk)
        if name not in SOUND:
            continue
        arguments = spoil(rng, SOUND[name](rng))
        of_python = answer(python, copy.deepcopy(arguments))
        of_compiled = answer(compiled, copy.deepcopy(arguments))
        if of_compiled[0] and of_python != of_compiled:
            wrong += 1
            sys.stdout.write(f"{name} {arguments}\n  {of_python}\n  {of_compiled}\n")
    sys.stdout.write(f"{count} calls, {wrong} wrong\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
