"""Settings that make searching and round-based policies quick enough to run a hundred times.

Their search is smaller and their rounds longer; what they must keep is the same.
"""

from __future__ import annotations

from weft.core.registry import names

CHEAP = {
    "gavel": "gavel:round=600",
    "pollux": "pollux:generations=4,population=12,interval=300",
    "shockwave": "shockwave:window=4,round=1800",
    "sia": "sia:interval=300",
    "slaq": "slaq:epoch=60",
    "smd": "smd:interval=300",
}


def every_policy() -> tuple[str, ...]:
    """Every registered policy, in its quick form where it has one."""
    return tuple(CHEAP.get(name, name) for name in names("policy"))
