"""What a rank printed last, as the reason of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.node.ranks.logs import RankLog


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("starts\nerror: no data\n  hint: name a folder\n", "error: no data"),
        ("Hint: what now\n", "Hint: what now"),
        ("\n\nall is well\n\n", "all is well"),
        ("", ""),
    ],
)
def test_the_reason_is_the_error_and_not_the_hint_below_it(
    tmp_path: Path, printed: str, reason: str
) -> None:
    log = RankLog(tmp_path / "rank-0.log", 1000)
    log.write(printed.encode())
    log.close()

    assert log.last_line() == reason
