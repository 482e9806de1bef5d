"""Spans of time as people write them: 90s, 15m, 12h, 30d, 2w."""

from __future__ import annotations

import re

from weft.core.errors import InvalidConfig

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def seconds(text: str, option: str) -> float:
    """How many seconds a text means; InvalidConfig names the option if it means none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", text)
    if match is None:
        raise InvalidConfig(
            f"{option} is {text!r}, not a span of time", hint="write it as 90s, 15m, 12h or 30d"
        )
    return float(match[1]) * UNITS[match[2]]
