"""How much of a thorough run a fast one tries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")

LEAST, MOST = 4, 60


def examples(thorough: int) -> settings:
    """So many of a thorough run; an eighth of them, at least 4 and at most 60, of a fast one."""
    if is_thorough():
        return settings(max_examples=thorough)
    part = settings().max_examples * thorough // 100
    return settings(max_examples=min(max(part, LEAST), MOST, thorough))


def is_thorough() -> bool:
    """Whether this is a thorough run."""
    return settings().max_examples >= 100


def some(cases: Sequence[Case], turn: int, count: int) -> list[Case]:
    """All in a thorough run; `count` of them in a fast one, others at another turn."""
    if is_thorough():
        return [*cases]
    return [cases[(turn * count + i) % len(cases)] for i in range(min(count, len(cases)))]
