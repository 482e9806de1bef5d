"""Moves of whole devices in the ledger, which most moves are."""

from __future__ import annotations

from typing import NamedTuple

from weft.core.model.job import Allocation, NodeId, Sharing, Slice
from weft.core.state.bit_sets import bits_of
from weft.core.state.claims import find_listed_twice
from weft.native import compiled

SLACK = 1e-6  # CPU cores and GB by which a host may be overdrawn: sums of fractions


class LedgerParts(NamedTuple):
    """What a ledger keeps, by node unless stated otherwise; the lists are changed in place."""

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
    """Whether these whole devices are there with their part of the host: a quick answer."""
    if not slices or (len(slices) > 1 and find_listed_twice(slices)):
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
