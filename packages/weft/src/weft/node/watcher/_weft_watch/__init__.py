"""Counts the steps of a training that knows nothing of Weft, and tells the attempt's agent."""

from __future__ import annotations

import _imp
from os import environ

from . import bars, counting, frameworks, guard, imports, line, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

HOOKS = [frameworks.HOOKS, bars.HOOKS, values.HOOKS]
NO_FILE = "<weft>"


def begin() -> None:
    """Watch this process, if an agent asked for it."""
    guard.guarded(_begin)()


def _begin() -> None:
    """As modules are imported, or are there already."""
    wanted = ("WEFT_WATCH", "WEFT_AGENT", "WEFT_JOB")
    if all(environ.get(name) for name in wanted) and counting.COUNTER is None:
        for module in (bars, counting, frameworks, guard, imports, line, values):
            _hide(module)
        counting.begin()
        if counting.COUNTER is not None:
            counting.COUNTER.more = values.VALUES.flush
        imports.call_after(HOOKS)


def _hide(module: ModuleType) -> None:
    """Name its code after no file: what measures the lines of a program then passes over ours."""
    owners = [module, *(each for each in vars(module).values() if isinstance(each, type))]
    for owner in owners:
        for value in list(vars(owner).values()):
            function = getattr(value, "fget", value)
            if getattr(function, "__globals__", None) is vars(module):
                code = getattr(function, "__code__", None)
                if code is not None:
                    _imp._fix_co_filename(code, NO_FILE)  # type: ignore[attr-defined]
