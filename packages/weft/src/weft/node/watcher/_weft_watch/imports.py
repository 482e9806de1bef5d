"""Calls a function with a module right after that was imported."""

from __future__ import annotations

import sys

from .guard import guarded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any, Callable

    Hook = Callable[[Any], None]

# Python leaves the frames of its own importing out of what it prints of errors, by this name.
IMPORTING = "<frozen importlib._bootstrap_external>"


def call_after(tables: list[dict[str, Hook]]) -> None:
    """By name of the module; at once for those that are there."""
    waiting: dict[str, list[Hook]] = {}
    for hooks in tables:
        for name, hook in hooks.items():
            waiting.setdefault(name, []).append(hook)
    for name in list(waiting):
        module = sys.modules.get(name)
        if module is not None:
            for hook in waiting.pop(name):
                guarded(hook)(module)
    sys.meta_path.insert(0, _Finder(waiting))


class _Finder:
    """Finds nothing itself: lets the others find a module, and is there when it was run."""

    def __init__(self, waiting: dict[str, list[Hook]]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                guarded(self._follow)(spec, name)
                return spec  # type: ignore[no-any-return]
        return None

    def _follow(self, spec: ModuleSpec, name: str) -> None:
        loader: Any = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None or type(getattr(loader, "__dict__", None)) is not dict:
            return

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            run(module)
            for hook in self._waiting.pop(name, ()) if module.__spec__.name == name else ():
                guarded(hook)(module)

        if hasattr(exec_module.__code__, "replace"):
            exec_module.__code__ = exec_module.__code__.replace(co_filename=IMPORTING)
        loader.exec_module = exec_module
