from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from weft.core.spec import registry
from weft.traces.formats.weft_csv import COLUMNS
from weft.traces.options import Options

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "traces.md"
NAMES = [*registry.names("trace"), *(field.name for field in fields(Options)), *COLUMNS]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_every_name_option_and_column(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text("utf-8")
