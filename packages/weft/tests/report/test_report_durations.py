from __future__ import annotations

import pytest

from weft.report.units import fix_digits, human, log_ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0123, "0.012"), (3.2, "3.20"), (45.67, "45.7"), (12345.6, "12,346")],
)
def test_numbers_line_up(value: float, text: str) -> None:
    assert fix_digits(value) == text


def test_durations_and_ticks_are_readable() -> None:
    assert human(42.0) == "42 s"
    assert log_ticks(30.0, 90_000.0)[1] == ["1 min", "10 min", "1 h", "6 h", "1 d"]
    assert log_ticks(3000.0, 30_000.0)[1] == ["1 h", "2 h", "4 h", "8 h"]
