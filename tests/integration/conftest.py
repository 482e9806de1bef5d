"""What a test that failed left running would slow down all that follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.wire.processes import descendants, kill_all


@pytest.fixture(autouse=True)
def _end_what_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Agents outlive their service, as they should; not the test that started them."""
    if "tmp_path" not in request.fixturenames:
        yield
        return
    folder = str(request.getfixturevalue("tmp_path"))
    yield
    left = [pid for pid in map(int, _numbers()) if folder in _command(pid)]
    kill_all([*left, *(child for pid in left for child in descendants(pid))])


def _numbers() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def _command(pid: int) -> str:
    """An agent's or a service's own words; empty for any other process, or one that is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    return words if "weft" in words else ""
