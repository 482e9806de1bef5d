"""Pairs of functions, in Python and compiled, that must not differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft.core.state.whole_devices
import weft.perf.goodput.adaptive
import weft.perf.goodput.curves
import weft.perf.goodput.fit
import weft.pieces.fit
import weft.pieces.order.finish_time
import weft.pieces.size.change_seconds
import weft.pieces.size.levels
import weft.policies.weft.values
import weft.sim.physics
import weft.solve.few_jobs
import weft.solve.prices  # noqa: F401 - these declare twins
from weft.native import TWINS, native


def twins(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function in Python and the compiled one."""
    if native is None:
        pytest.skip("weft.native is not compiled: apt-get install gcc, or unset WEFT_PURE")
    return TWINS[name]
