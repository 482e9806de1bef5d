"""Spans of time as people write them."""

from __future__ import annotations

import pytest

from weft.cli.options.shared import seconds
from weft.core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90.0), ("90s", 90.0), ("15m", 900.0), ("1.5h", 5400.0), ("30d", 2_592_000.0), ("0", 0)],
)
def test_a_span_is_read(text: str, expected: float) -> None:
    assert seconds(text, "--expires") == expected


@pytest.mark.parametrize("text", ["", "soon", "-3d", "3y", "1d2h", "nan"])
def test_what_is_no_span_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--expires"):
        seconds(text, "--expires")
