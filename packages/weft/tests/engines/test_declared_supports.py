"""What an engine's class declares is what its instances say."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.app.engine import build_engine
from weft.core.spec.registry import find

NEEDS_NOTHING = ("local", "processes", "simulated", "slurm")


@pytest.mark.parametrize("name", NEEDS_NOTHING)
def test_an_engine_supports_what_its_class_declares(name: str, tmp_path: Path) -> None:
    for how, controls in find("engine", name).declares:
        assert build_engine(name + how, state=tmp_path).supports == controls
