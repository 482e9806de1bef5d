"""The local engine with real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from weft.engines.local import LocalEngine
from weft.testing.check_engine import CHECKS
from weft.testing.engine_resize import a_training_is_resized
from weft.testing.engine_subject import Check, Subject, shell_subject

IMPORTS_S = 400.0  # what ranks may take to import torch, one after the other


def subject(state: Path) -> Subject:
    return shell_subject(
        lambda: LocalEngine(state, slots=2, warm=False, cpu=True), exact=True, patience_s=IMPORTS_S
    )


@pytest.mark.slow
def test_the_local_engine_resizes_a_training(tmp_path: Path) -> None:
    asyncio.run(a_training_is_resized(subject(tmp_path / "state")))


@pytest.mark.parametrize(
    "check",
    [check for check in CHECKS.values() if check is not a_training_is_resized],
    ids=lambda c: c.__name__,
)
def test_the_local_engine_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state")))
