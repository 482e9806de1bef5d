"""Moves of whole devices in the ledger, which most moves are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from weft.core.model.job import Allocation, NodeId, Sharing, Slice, Tier
from weft.native import compiled

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
def drop_highest_bits(bits: int, without: int) -> int:
    """A set of bits less that many of its largest numbers."""
    for _ in range(without):
        bits &= ~(1 << (bits.bit_length() - 1))
    return bits


@lru_cache(maxsize=1 << 16)
def bits_of(numbers: tuple[int, ...]) -> int:
    """Such numbers as a set; empty where one is listed twice, or is below 0."""
    if min(numbers, default=-1) < 0 or len(set(numbers)) < len(numbers):
        return 0
    return sum(1 << number for number in numbers)


# Claims are counted in whole parts of a device: sums do not depend on their order, so a rollback
# restores exactly what was there, and a ledger read from the log equals the one that wrote it.
WHOLE = 10**12


def count_parts(share: float) -> int:
    """A part of a device, a core or a GB in whole parts."""
    return round(share * WHOLE)


def is_sound(sharing: Sharing, eps: float) -> bool:
    """True if a claim is a part of a device; an opportunistic job may claim nothing."""
    if sharing.tier is Tier.OPPORTUNISTIC:
        return 0.0 <= sharing.share <= 1.0
    return eps <= sharing.share <= 1.0 + eps


def find_repeated_node(slices: tuple[Slice, ...]) -> str:
    """The first node that two slices name; empty where none is."""
    nodes = [part.node for part in slices]
    if len(set(nodes)) == len(nodes):
        return ""
    return next(node for at, node in enumerate(nodes) if node in nodes[:at])


SLACK = 1e-6  # CPU cores and GB by which a host may be overdrawn: sums of fractions


class LedgerParts(NamedTuple):
    """The lists of a ledger, by node unless stated otherwise; they are changed in place."""

    position: dict[NodeId, int]  # in the cluster
    pool: list[int]  # the number of its kind
    full: list[int]  # all its devices, as bits
    mask: list[int]  # its wholly free devices, as bits
    bits: list[list[int]]  # by kind and count: the nodes with that many free, as bits
    idle: list[int]  # by kind: wholly free devices
    empty: list[tuple[float, float]]  # CPU cores and GB of memory of an empty host
    host: list[tuple[float, float]]  # the same that are left
    guests: dict[tuple[int, int], int]  # opportunistic jobs by node and device


@compiled
def take_whole(parts: LedgerParts, allocation: Allocation, exclusive: Sharing) -> bool:
    """Take whole devices with their part of the host; False, and nothing, if they are not there.

    False also for what is no allocation of whole devices.
    """
    slices = allocation.slices
    if allocation.sharing is not exclusive or not are_free(parts, slices):
        return False
    _move(parts, slices, taking=True)
    return True


@compiled
def give_whole(parts: LedgerParts, allocation: Allocation, exclusive: Sharing) -> bool:
    """Give whole devices back; False, and nothing, if that is no allocation of whole devices."""
    slices = allocation.slices
    if allocation.sharing is not exclusive or not all(bits_of(part.gpus) for part in slices):
        return False
    _move(parts, slices, taking=False)
    return True


def are_free(parts: LedgerParts, slices: tuple[Slice, ...]) -> bool:
    """True if these whole devices are there with their part of the host: a quick answer."""
    if not slices or (len(slices) > 1 and find_repeated_node(slices)):
        return False
    for part in slices:
        node, devices = parts.position.get(part.node), bits_of(part.gpus)
        if node is None or not devices or devices & ~parts.mask[node]:
            return False
        cpus, mem = parts.host[node]
        if part.cpus > cpus + SLACK or part.mem_gb > mem + SLACK:
            return False
    return True


def _move(parts: LedgerParts, slices: tuple[Slice, ...], *, taking: bool) -> None:
    for part in slices:
        node, devices = parts.position[part.node], bits_of(part.gpus)
        mask = parts.mask[node]
        set_mask(parts, node, mask & ~devices if taking else mask | devices)
        move_host(parts, node, part, -1.0 if taking else 1.0)


def set_mask(parts: LedgerParts, node: int, mask: int) -> None:
    """These devices of a node are free now."""
    pool = parts.pool[node]
    before, after = parts.mask[node].bit_count(), mask.bit_count()
    parts.mask[node] = mask
    if before != after:
        bit, bits = 1 << node, parts.bits[pool]
        bits[before] ^= bit
        bits[after] ^= bit
        parts.idle[pool] += after - before


def move_host(parts: LedgerParts, node: int, part: Slice, sign: float) -> None:
    """Take a part of a host, or give it back, once its devices have been moved."""
    empty, guests = parts.mask[node] == parts.full[node], parts.guests
    if empty and sign > 0 and not (guests and any(on == node for on, _ in guests)):
        # The exact capacity whenever a node empties, so that rounding never adds up.
        parts.host[node] = parts.empty[node]
        return
    cpus, mem = parts.host[node]
    parts.host[node] = (cpus + sign * part.cpus, mem + sign * part.mem_gb)
