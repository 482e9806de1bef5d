"""How many examples a property is tried with, where it says so itself."""

from __future__ import annotations

from hypothesis import settings

LEAST = 6


def examples(thorough: int) -> settings:
    """So many of a thorough run; a quarter of them, at least 6, of a fast one."""
    part = settings().max_examples * thorough // 100
    return settings(max_examples=min(max(part, LEAST), thorough))
