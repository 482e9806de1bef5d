"""Parts of Weft that are compiled where it was installed with a compiler at hand.

Everything in `_native` is written in Python as well, with the same results to the last bit: the
decorator `compiled` takes one for the other. `WEFT_PURE=1` leaves everything to Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from zlib import crc32

Function = TypeVar("Function", bound=Callable[..., Any])
TWINS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # in Python, and compiled


def _load() -> tuple[ModuleType | None, str]:
    """The compiled module, or why there is none."""
    folder = Path(__file__).parent
    if os.environ.get("WEFT_PURE"):
        return None, "WEFT_PURE is set"
    if not any((folder / f"_native{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        return None, "Weft was installed without a C compiler"
    from weft.native import _native

    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.[ch]")))
    if sources and f"{crc32(sources):08x}" != _native.DIGEST:
        return None, "it was compiled from other sources; `make .venv/.ready` compiles it again"
    return _native, ""


native, why_not = _load()


def compiled(function: Function) -> Function:
    """The compiled function of the same name where there is one, else this one."""
    name = function.__name__.strip("_")
    twin: Function | None = None if native is None else vars(native).get(name)
    if twin is None:
        return function
    TWINS[name] = function, twin
    return twin
