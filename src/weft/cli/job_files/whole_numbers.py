"""Whole numbers as they are typed."""

from __future__ import annotations

MOST_DIGITS = 18


def is_whole(text: str) -> bool:
    """Whether it is one that `int` reads: plain digits, and not thousands of them."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
