"""Every compiled function is compared with the Python one of its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.twins.twins import twins

import weft
from weft.native import TWINS, native

SRC = Path(weft.__file__).parent


def test_every_pair_is_compared() -> None:
    if native is None:
        pytest.skip("weft.native is not compiled: apt-get install gcc, or unset WEFT_PURE")
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    compared = {name for text in texts for name in re.findall(r'"(\w+)"', text)}

    assert not set(TWINS) - compared, "compare them in this folder"


def test_every_compiled_function_has_a_twin() -> None:
    twins("choose_rows")  # skipped where nothing is compiled
    functions = {name for name, what in vars(native).items() if callable(what)}

    assert functions - {"make_directly"} == set(TWINS), "nobody calls them"


def test_every_function_that_may_be_compiled_is() -> None:
    twins("choose_rows")
    marked = {
        (below or inside).strip("_")
        for path in SRC.rglob("*.py")
        for below, inside in re.findall(
            r"^@compiled\ndef (\w+)|= compiled\((\w+)\)", path.read_text(), re.MULTILINE
        )
    }

    assert marked == set(TWINS)
