"""Which parameters live on which server: equal bytes and equal requests (Optimus, EuroSys 2018).

Blocks go from large to small. Tiny ones count as requests only; those that fit go where they leave
the least room; larger ones are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from weft.core.errors import InvalidConfig

TINY = 0.01  # of a server's part: smaller blocks matter by their requests alone


@dataclass(slots=True)
class Server:
    """What one server holds: how much in all, and of which blocks how much."""

    total: int = 0
    pieces: list[tuple[int, int]] = field(default_factory=list)

    def take(self, block: int, size: int) -> None:
        """One more block, or a piece of one."""
        self.total += size
        self.pieces.append((block, size))


def assign(sizes: Sequence[int], servers: int) -> list[Server]:
    """Every block, whole or in pieces, on servers that end up with equal parts."""
    if servers < 1 or any(size < 0 for size in sizes):
        raise InvalidConfig(
            f"{len(sizes)} blocks cannot be shared among {servers} servers",
            hint="there is at least one server, and no block of negative size",
        )
    found = [Server() for _ in range(servers)]
    part = ceil(sum(sizes) / servers)
    for block in sorted(range(len(sizes)), key=lambda b: (-sizes[b], b)):
        size = sizes[block]
        if size <= TINY * sum(sizes) / servers:
            min(found, key=lambda s: len(s.pieces)).take(block, size)
            continue
        while size > part:
            emptiest = min(found, key=lambda s: s.total)
            piece = max(min(part - emptiest.total, size), 1)
            emptiest.take(block, piece)
            size -= piece
        if size:
            _best_fit(found, part, size).take(block, size)
    return found


def _best_fit(servers: list[Server], part: int, size: int) -> Server:
    """Where the least room is left, else where the least is."""
    fitting = [s for s in servers if s.total + size <= part]
    if fitting:
        return max(fitting, key=lambda s: s.total)
    return min(servers, key=lambda s: s.total)


def imbalance(servers: Sequence[Server]) -> float:
    """The fullest server over the mean: what a step waits for, over what it would."""
    mean = sum(s.total for s in servers) / len(servers)
    return max(s.total for s in servers) / mean if mean else 1.0
