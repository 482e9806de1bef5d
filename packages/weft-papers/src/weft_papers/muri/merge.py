"""Groups of admitted jobs on the same devices: merged pair by pair while GPUs are short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.core.state.cells import Floats
from weft_papers.muri.matching import match_types

Mix = tuple[int, ...]  # the profiles of a group's members by number, sorted
Weight = Callable[[Mix], float]


@dataclass(slots=True)
class MergedGroup:
    """Jobs that share devices, by row; `profiles` are those of each, by number."""

    rows: list[int]
    profiles: list[int]

    @property
    def sorted_profiles(self) -> Mix:
        """The profiles of its members in sorted order: all that matters for speed."""
        return tuple(sorted(self.profiles))


@dataclass(slots=True)
class Bucket:
    """Groups that ask for the same number of GPUs, best first; `most` may share a device."""

    gpus: int
    most: int
    groups: list[MergedGroup] = field(default_factory=list)


def merge_all(
    buckets: Sequence[Bucket], room: float, weight: Weight, *, best_first: bool = False
) -> None:
    """Merge groups until all fit into `room`, by rounds of maximum-weight matching.

    Each round at most doubles the size of groups. With `best_first` the pairs of a bucket
    merge in order of their weight, else as they stand.
    """
    required = float(sum(len(b.groups) * b.gpus for b in buckets))
    for _ in range(max((b.most for b in buckets), default=0)):
        if required <= room:
            return
        before = required
        for bucket in buckets:
            if bucket.most > 1:
                required = _round(bucket, required, room, weight, best_first=best_first)
        if required == before:
            return


def _round(
    bucket: Bucket, required: float, room: float, weight: Weight, *, best_first: bool
) -> float:
    """One round in one bucket; pairs that are not needed any more stay apart."""
    merged: list[MergedGroup] = []
    matched = _match(bucket.groups, bucket.most, weight)
    if best_first:
        matched.sort(key=lambda pair: -_worth(pair, weight))
    for group, other in matched:
        if other is None:
            merged.append(group)
        elif required > room:
            merged.append(MergedGroup(group.rows + other.rows, group.profiles + other.profiles))
            required -= bucket.gpus
        else:
            merged += [group, other]
    bucket.groups = merged
    return required


def _match(
    groups: Sequence[MergedGroup], most: int, weight: Weight
) -> list[tuple[MergedGroup, MergedGroup | None]]:
    """Pairs and singles, in the order in which the later of a pair stands."""
    mixes = [group.sorted_profiles for group in groups]
    names = list(dict.fromkeys(mixes))
    number = {mix: i for i, mix in enumerate(names)}
    waiting: list[list[int]] = [[] for _ in names]
    for at, mix in enumerate(mixes):
        waiting[number[mix]].append(at)
    partner: dict[int, int] = {}
    table = _weights(names, most, weight)
    for a, b, count in match_types([len(w) for w in waiting], table):
        for _ in range(count):
            first, other = waiting[a].pop(0), waiting[b].pop(0)
            partner[max(first, other)] = min(first, other)
    taken = set(partner.values())
    ordered: list[tuple[MergedGroup, MergedGroup | None]] = []
    for at, group in enumerate(groups):
        if at in partner:
            ordered.append((groups[partner[at]], group))
        elif at not in taken:
            ordered.append((group, None))
    return ordered


def _worth(pair: tuple[MergedGroup, MergedGroup | None], weight: Weight) -> float:
    group, other = pair
    return 0.0 if other is None else weight(tuple(sorted(group.profiles + other.profiles)))


def _weights(names: Sequence[Mix], most: int, weight: Weight) -> Floats:
    table = np.zeros((len(names), len(names)))
    for a, mix in enumerate(names):
        for b in range(a, len(names)):
            if len(mix) + len(names[b]) <= most:
                table[a, b] = weight(tuple(sorted(mix + names[b])))
    return table
