"""`weft.train` is `weft_train`, of the distribution `weft-train`, under the name that it had.

Its modules are the same objects by either name: `weft.train.errors` is `weft_train.errors`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft_train import TrainError, TrainingJob, init, plan

    __all__ = ["TrainError", "TrainingJob", "init", "plan"]

OLD, NEW = "weft.train", "weft_train"


class _OldNames(MetaPathFinder, Loader):
    """Finds `weft.train.NAME` as `weft_train.NAME`, which is imported if it was not yet."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(name, _OldNames()) if name.startswith(f"{OLD}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(NEW + spec.name.removeprefix(OLD))
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # the import set another one


try:
    sys.modules[OLD] = import_module(NEW)
except ModuleNotFoundError as error:
    if error.name != NEW:
        raise
    raise ModuleNotFoundError(
        "weft.train is the distribution weft-train, which is not installed\n"
        "  hint: pip install weft-train",
        name=NEW,  # `from weft import train` hides errors of its own name
    ) from error
sys.meta_path.insert(0, _OldNames())
