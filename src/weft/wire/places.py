"""Where checkpoints are kept: a folder, or an address in an object store."""

from __future__ import annotations

import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(place: object) -> bool:
    """Whether a place has a scheme (`s3://bucket/run`) and is no path."""
    return _URL.match(str(place)) is not None
