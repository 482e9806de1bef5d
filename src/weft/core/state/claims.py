"""What an allocation claims of devices: parts that add up exactly, and what no claim may be."""

from __future__ import annotations

from weft.core.model.job import Sharing, Slice, Tier

# Claims are counted in whole parts of a device: sums do not depend on their order, so a rollback
# restores exactly what was there, and a ledger read from the log equals the one that wrote it.
WHOLE = 10**12


def count_parts(share: float) -> int:
    """A part of a device, a core or a GB in whole parts."""
    return round(share * WHOLE)


def is_sound(sharing: Sharing, eps: float) -> bool:
    """Whether a claim is a part of a device; an opportunistic job may claim nothing."""
    if sharing.tier is Tier.OPPORTUNISTIC:
        return 0.0 <= sharing.share <= 1.0
    return eps <= sharing.share <= 1.0 + eps


def find_listed_twice(slices: tuple[Slice, ...]) -> str:
    """The first node that two slices name; empty where none is."""
    nodes = [part.node for part in slices]
    if len(set(nodes)) == len(nodes):
        return ""
    return next(node for at, node in enumerate(nodes) if node in nodes[:at])
