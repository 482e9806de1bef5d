"""Keeps the watcher's errors from the program, and leaves the program its own.

A handler of signals runs wherever Python happens to be, so within the watcher too, and what it
raises is the program's: it goes on to where the program waits for it. So does what a debugger's
trace function raises, and an exception that another thread puts into this one.
"""

from __future__ import annotations

import builtins
from os import fstat, write

TYPE_CHECKING = False  # `typing` is not imported here: the program may have a module of that name
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable

OUTPUT = 2
# Errors that Python itself raises in code like this; of others we know that they are not ours.
PLAIN = frozenset(
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and kind not in (Exception, TimeoutError)
)
NAMES = ("__module__", "__name__", "__qualname__", "__doc__")
NUMBERS = (int, float)

_said = False


def identity(descriptor: int) -> tuple[int, int] | None:
    """Device and inode of an open descriptor; None where it is closed."""
    try:
        kept = fstat(descriptor)
    except OSError as error:
        if is_the_programs(error):
            raise
        return None
    return kept.st_dev, kept.st_ino


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without its own errors: the first is said in one line."""

    def run(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            if is_the_programs(error):
                raise
            complain(error)
            return None

    return run


def is_the_programs(error: BaseException) -> bool:
    """Return True for an error put into our code from outside, rather than raised by it."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        if _interrupted(step.tb_frame, step.tb_next.tb_frame):
            return True
        step = step.tb_next
    if step is None or type(error) in PLAIN:
        return False
    return step.tb_frame.f_globals.get("__package__") == __package__


def _interrupted(frame: FrameType, handler: FrameType) -> bool:
    """Handlers of signals and of tracing are given the frame that they interrupt."""
    for value in list(handler.f_locals.values()):
        if value is frame or (type(value) is tuple and any(each is frame for each in value)):
            return True
    return False


def complain(error: BaseException) -> None:
    """Once, where the output for errors still is what this process began with."""
    global _said
    if _said or identity(OUTPUT) != BEGAN_WITH or BEGAN_WITH is None:
        return
    _said = True
    text = f"weft: this process is only partly watched: {type(error).__name__}: {error}\n"
    try:
        write(OUTPUT, text.encode(errors="replace"))
    except OSError as failed:
        if is_the_programs(failed):
            raise


def stand_in(wrapper: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper with the name of what it wraps, as `functools.wraps` does it."""
    for name in NAMES:
        if hasattr(plain, name):
            setattr(wrapper, name, getattr(plain, name))
    vars(wrapper).update(vars(plain))
    vars(wrapper)["__wrapped__"] = plain
    return wrapper


def is_function(owner: object, *names: str) -> bool:
    """Return True if a class has all of these as functions of Python, which can be wrapped."""
    return isinstance(owner, type) and all(
        type(getattr(owner, name, None)) is type(is_function) for name in names
    )


def number(value: object) -> float | None:
    """A number of Python's or numpy's; None for all else, such as one that waits on a device."""
    if isinstance(value, NUMBERS) or type(value).__module__ == "numpy":
        return float(value)  # type: ignore[arg-type]
    return None


BEGAN_WITH = identity(OUTPUT)
