"""The engine contract as parameters of a test: `make test` has time for a few of its checks."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from weft.testing.check_engine import CHECKS


def every_check(*quick: str) -> list[ParameterSet]:
    """All checks; those that are not `quick` are left to `make test-engines`."""
    return [
        pytest.param(check, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, check in CHECKS.items()
    ]
