"""Calls a function with a module right after that was imported."""

from __future__ import annotations

import importlib.abc
import sys
from typing import TYPE_CHECKING, Any, Callable

from .counting import guarded

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Hook = Callable[[Any], None]


def call_after(hooks: dict[str, Hook]) -> None:
    """By name of the module; at once for those that are there."""
    waiting = dict(hooks)
    for name in hooks:
        module = sys.modules.get(name)
        if module is not None:
            guarded(waiting.pop(name))(module)
    sys.meta_path.insert(0, _Finder(waiting))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the others find a module, and is there when it was run."""

    def __init__(self, waiting: dict[str, Hook]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
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
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            run(module)
            hook = self._waiting.pop(name, None)
            if hook is not None:
                guarded(hook)(module)

        loader.exec_module = exec_module
