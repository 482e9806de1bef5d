"""Sets of small numbers as the bits of one integer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

WORDS = Struct("<Q")


def walk_bits(bits: int) -> Iterator[int]:
    """The numbers in a set, in order; costs what is walked, as words of 64 bits are taken apart."""
    size = (bits.bit_length() + 63) // 64 * 8
    for at, (word,) in enumerate(WORDS.iter_unpack(bits.to_bytes(size, "little"))):
        while word:
            low = word & -word
            yield at * 64 + low.bit_length() - 1
            word ^= low


@lru_cache(maxsize=1 << 16)
def lowest_bits(bits: int, without: int) -> int:
    """The same set less that many of its largest numbers."""
    for _ in range(without):
        bits &= ~(1 << (bits.bit_length() - 1))
    return bits


@lru_cache(maxsize=1 << 16)
def bits_of(numbers: tuple[int, ...]) -> int:
    """Such numbers as a set; empty where one is listed twice, or is below 0."""
    if min(numbers, default=-1) < 0 or len(set(numbers)) < len(numbers):
        return 0
    return sum(1 << number for number in numbers)
