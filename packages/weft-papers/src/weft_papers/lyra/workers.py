"""Base and flexible workers of jobs, and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

import numpy as np

from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Config
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats
from weft.solve.exact import by_dynamic_programming
from weft.solve.few_jobs import ChoiceProblem
from weft.solve.multiple_choice import choose

Parts = dict[int, int]  # node to a bit mask of its devices


def devices_by_node(on: Allocation, cluster: Cluster) -> Parts:
    """Return the devices of an allocation by node, as bits."""
    return {cluster.index[part.node]: sum(1 << gpu for gpu in part.gpus) for part in on.slices}


def count_of(parts: Parts) -> int:
    """Devices in total."""
    return sum(mask.bit_count() for mask in parts.values())


def allocation_of(parts: Parts, free: Capacity) -> Allocation:
    """Make an allocation of devices by node."""
    return Allocation(tuple(free.slice_of(node, mask) for node, mask in sorted(parts.items())))


def join(parts: Parts, other: Parts) -> Parts:
    """Both together."""
    joined = dict(parts)
    for node, mask in other.items():
        joined[node] = joined.get(node, 0) | mask
    return joined


def split(parts: Parts, base: int, loaned: Sequence[bool]) -> tuple[Parts, Parts]:
    """Base and flexible workers: base ones are those on own nodes, and on the largest parts."""
    order = sorted(parts, key=lambda node: (loaned[node], -parts[node].bit_count(), node))
    needed: Parts = {}
    flexible: Parts = {}
    for node in order:
        mine = _lowest(parts[node], base)
        base -= mine.bit_count()
        if mine:
            needed[node] = mine
        if rest := parts[node] & ~mine:
            flexible[node] = rest
    return needed, flexible


def place_base(count: int, nodes: Iterable[int], free: Capacity) -> Parts | None:
    """On the node that it fits best, else on as few as can be, the largest first."""
    room = [(free.on(node), node) for node in nodes]
    fitting = [entry for entry in room if entry[0] >= count]
    if fitting:
        node = min(fitting)[1]
        return {node: _lowest(free.idle_mask(node), count)}
    if sum(idle for idle, _ in room) < count:
        return None
    parts: Parts = {}
    for idle, node in sorted(room, key=lambda entry: (-entry[0], entry[1])):
        if idle > count:
            # The rest fits on one node: the one that it fills best.
            node = min(entry for entry in room if entry[0] >= count and entry[1] not in parts)[1]
        parts[node] = _lowest(free.idle_mask(node), min(idle, count))
        count -= parts[node].bit_count()
        if not count:
            break
    return parts


def place_flexible(count: int, before: Parts, order: Iterable[int], free: Capacity) -> Parts:
    """Up to `count` devices: first those that the job had `before`, then node by node."""
    parts: Parts = {}
    for node, mask in before.items():
        if kept := _lowest(free.idle_mask(node) & mask, count):
            parts[node] = kept
            count -= kept.bit_count()
    for node in order:
        if not count:
            break
        idle = free.idle_mask(node) & ~parts.get(node, 0)
        if taken := _lowest(idle, count):
            parts[node] = parts.get(node, 0) | taken
            count -= taken.bit_count()
    return parts


def _lowest(mask: int, count: int) -> int:
    """The lowest bits of a mask, at most that many."""
    while mask.bit_count() > count:
        mask &= ~(1 << (mask.bit_length() - 1))
    return mask


# How many flexible workers jobs get: a multiple-choice knapsack on the time that they save.

EXACT = 2e7  # cells of the dynamic programme up to which it is used
TIE = 1e-9


def time_saved(seconds: float, speeds: Floats) -> Floats:
    """Seconds saved by 1, 2, ... more workers; `speeds` are those at base and with more."""
    return np.asarray(seconds * (1.0 - speeds[0] / np.maximum(speeds[1:], 1e-12)))


def choose_extra(
    saved: Sequence[Floats], room: int, held: Sequence[int] | None = None
) -> list[int]:
    """Workers beyond base of each job, within `room` GPUs, that save most time together.

    Ties go to the number that is `held`.
    """
    most = min(max((len(gains) for gains in saved), default=0), room)
    if not most:
        return [0] * len(saved)
    value = np.full((len(saved), most), -np.inf)
    for i, gains in enumerate(saved):
        value[i, : len(gains)] = gains[:most]
        now = held[i] if held is not None else 0
        if 0 < now <= min(len(gains), most):
            value[i, now - 1] *= 1.0 + TIE
    count = np.arange(1.0, most + 1.0)
    kind, capacity = np.zeros(most, dtype=np.intp), np.array([float(room)])
    if value.size * room <= EXACT:
        pick = by_dynamic_programming(value, kind, count, capacity)
    else:
        pick = choose(ChoiceProblem(value, kind, count, capacity)).pick
    return [int(extra) + 1 for extra in pick]


def believed_speeds(view: View, kind: str, most: int) -> Floats:
    """Rows x GPUs from 0 to `most` of a kind: speed; in proportion where nothing is believed."""
    linear = np.tile(np.arange(most + 1.0), (len(view.table), 1))
    if view.beliefs is None:
        return linear
    size = view.cluster.node_size(kind)
    configs = [Config(kind, ceil(gpus / size), gpus) for gpus in range(1, most + 1)]
    known = view.beliefs.goodputs(view.table, configs)
    usable = ~np.isnan(known[:, :1])
    return np.where(usable, np.concatenate([np.zeros((len(known), 1)), known], axis=1), linear)
