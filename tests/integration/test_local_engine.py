"""The local engine with real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from weft.engines.local import LocalEngine
from weft.testing.check_engine import CHECKS, Check, Subject
from weft.testing.engine_subject import shell_subject


def subject(state: Path) -> Subject:
    return shell_subject(
        lambda: LocalEngine(state, slots=2, warm=False, cpu=True),
        exact=True,
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_local_engine_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state")))
