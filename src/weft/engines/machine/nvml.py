"""NVIDIA's management library, where it is installed and a driver answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """The module `pynvml`, ready to be asked; None without it or without a driver.

    It is optional: `nvidia-smi` says the same, more slowly.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
