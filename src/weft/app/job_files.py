"""Files of jobs that the service shows to people."""

from __future__ import annotations

from pathlib import Path

from weft.wire.errors import WireError
from weft.wire.regular_files import open_regular


def open_output(path: Path) -> int | None:
    """A handle to read what a job printed; None if it is not there, or is no file of the job."""
    try:
        return open_regular(path)
    except (OSError, WireError):
        return None
