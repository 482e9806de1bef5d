"""Paths as people type them."""

from __future__ import annotations

import os.path
from pathlib import Path


def expand(text: str | Path) -> Path:
    """A path with `~` in the place of a home folder; that of an unknown user stays as it is.

    So it is a file that is not there, as any other; `Path.expanduser` raises RuntimeError.
    """
    return Path(os.path.expanduser(text))  # noqa: PTH111
