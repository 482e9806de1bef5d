"""Shards of tensors, from ranks that divide them in one way to ranks that do it in another.

Every old rank writes in the ranks' store where its parts are in its memory. Every rank of the next
epoch reads what it is to have out of that memory, and is sent what it cannot read. Nothing is
summed, and no rank holds the whole.
"""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor

from weft_train.ranks.peer_memory import (
    Origin,
    Span,
    check_origin,
    name_gpu,
    open_memory,
    open_on_gpu,
    read_spans,
    share_on_gpu,
)
from weft_train.ranks.transfer import CPU, Sent

log = logging.getLogger(__name__)

Box = tuple[tuple[int, int], ...]  # from and to along every dimension, in the whole tensor


class Shard(NamedTuple):
    """The part of a tensor on a rank, and its place in the whole."""

    local: torch.Tensor
    box: Box

    @classmethod
    def of(cls, value: torch.Tensor) -> Shard:
        """The part of a tensor that is here; all of it, if it is not divided."""
        if not isinstance(value, DTensor):
            return cls(value.detach(), tuple((0, size) for size in value.shape))
        (chunk,) = value.__create_chunk_list__()  # type: ignore[no-untyped-call]
        pairs = zip(chunk.offsets, chunk.sizes, strict=True)
        return cls(value.to_local().detach(), tuple((at, at + size) for at, size in pairs))


Shards = Mapping[str, Shard]


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Ranks by number: those that have the parts, and those that are to have them.

    `lines` connect them all, in the order of `everyone`; `store` is where they meet.
    """

    store: Any
    lines: Any
    old: tuple[int, ...]
    members: tuple[int, ...]
    me: int

    @property
    def everyone(self) -> tuple[int, ...]:
        """All of them, the old ones first."""
        return list_everyone(self.old, self.members)


def list_everyone(old: Sequence[int], members: Sequence[int]) -> tuple[int, ...]:
    """Old ranks and then those that are new."""
    return (*old, *(number for number in members if number not in old))


@dataclass(frozen=True, slots=True)
class _Held:
    box: Box
    sent: Sent


@dataclass(frozen=True, slots=True)
class _Want:
    """A part of a tensor that a rank is to have, and the rank that has it."""

    name: str
    box: Box
    holder: int
    held: _Held

    @property
    def rows(self) -> tuple[int, int]:
        """From and to in what the holder has, along the first dimension; (0, 1) for a number."""
        return _within(self.held.box, self.box)[0] if self.box else (0, 1)


def exchange(
    plan: ShardPlan, have: Shards, fill: Shards, device: torch.device, *, direct: bool = True
) -> None:
    """Give what this rank has, where it is an old one, and fill what it is to have.

    RuntimeError if a peer does not take part in time, or no rank has a part.
    """
    gives, takes = plan.me in plan.old, plan.me in plan.members
    with open_memory(device) as origin:
        if gives:
            mine = {name: _Held(part.box, _place(part.local)) for name, part in have.items()}
            plan.store.set(f"parts-{plan.me}", pickle.dumps((origin if direct else None, mine)))
        unread: list[_Want] = []
        if takes:
            wants, origins = _find_wants(plan, fill)
            unread = _read(plan, wants, origins, have, fill, device)
            plan.store.set(f"unread-{plan.me}", pickle.dumps(unread))
        sends = list(_send(plan, have)) if gives else []
        _receive(plan, unread, fill)
        for work, _ in sends:
            work.wait()


# ---- who has what


def _place(local: torch.Tensor) -> Sent:
    if not local.is_contiguous():
        raise RuntimeError("a part of a tensor is not contiguous")
    handle = share_on_gpu(local) if local.is_cuda and local.numel() else None
    address = local.data_ptr() if local.device == CPU else 0
    return Sent(tuple(local.shape), local.dtype, address, handle)


def _size(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def _meet(box: Box, other: Box) -> Box | None:
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))
    return both if all(start < stop for start, stop in both) else None


def _within(whole: Box, part: Box) -> Box:
    """A part's place, counted from where `whole` begins."""
    pairs = zip(whole, part, strict=True)
    return tuple((start - at, stop - at) for (at, _), (start, stop) in pairs)


def _cut(local: torch.Tensor, whole: Box, part: Box) -> torch.Tensor:
    """The view of a part in what a rank has."""
    return local[tuple(slice(start, stop) for start, stop in _within(whole, part))]


def _target(fill: Shards, want: _Want) -> torch.Tensor:
    return _cut(*fill[want.name], want.box)


def _find_wants(plan: ShardPlan, fill: Shards) -> tuple[list[_Want], dict[int, Origin | None]]:
    """The parts that make up what this rank is to have, from itself where it has them."""
    offers = {old: pickle.loads(plan.store.get(f"parts-{old}")) for old in plan.old}  # noqa: S301
    spread = plan.members.index(plan.me)
    wants = []
    for name, (local, own) in fill.items():
        missing = local.numel()
        holders: dict[Box, list[int]] = {}
        for old, (_, parts) in offers.items():
            if name in parts:
                holders.setdefault(parts[name].box, []).append(old)
        for box, ranks in holders.items():
            if (part := _meet(own, box)) is not None:
                holder = plan.me if plan.me in ranks else ranks[spread % len(ranks)]
                wants.append(_Want(name, part, holder, offers[holder][1][name]))
                missing -= _size(part)
        if missing:
            raise RuntimeError(f"no rank has all of {name}")
    return wants, {old: origin for old, (origin, _) in offers.items()}


# ---- parts, read


def _read(
    plan: ShardPlan,
    wants: Sequence[_Want],
    origins: Mapping[int, Origin | None],
    have: Shards,
    fill: Shards,
    device: torch.device,
) -> list[_Want]:
    """Fill what can be read; the rest, which must be sent."""
    unread: list[_Want] = []
    for holder in dict.fromkeys(want.holder for want in wants):
        some = [want for want in wants if want.holder == holder]
        if holder == plan.me:
            for want in some:
                _target(fill, want).copy_(_cut(*have[want.name], want.box))
            continue
        try:
            _read_from(origins[holder], some, fill, device)
        except (OSError, RuntimeError) as error:
            log.info("rank %d sends its parts, as they cannot be read: %s", holder, error)
            unread += some
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return unread


def _read_from(
    origin: Origin | None, wants: Sequence[_Want], fill: Shards, device: torch.device
) -> None:
    if origin is None:
        raise OSError("its memory is closed")
    check_origin(origin)
    own_gpu, later = name_gpu(device), list[Callable[[], object]]()
    spans: list[Span] = []
    for want in wants:
        target, sent = _target(fill, want), want.held.sent
        if sent.handle is not None and origin.gpu == own_gpu:
            target.copy_(_cut(open_on_gpu(sent.handle), want.held.box, want.box))
        elif not sent.address:
            raise OSError("a part is on another GPU, or cannot be shared")
        else:
            rows = _make_rows(want)
            start = want.rows[0] * rows[:1].nbytes
            spans.append((rows.data_ptr(), sent.address + start, rows.nbytes))
            later.append(_filling(target, rows, want))
    read_spans(origin, spans)
    for put in later:
        put()


def _make_rows(want: _Want) -> torch.Tensor:
    """Memory for whole rows of what the holder has: these lie one behind the other there."""
    start, stop = want.rows
    return torch.empty((stop - start, *want.held.sent.shape[1:]), dtype=want.held.sent.dtype)


def _filling(target: torch.Tensor, rows: torch.Tensor, want: _Want) -> Callable[[], object]:
    """Return a function that puts rows that have come where they belong."""
    if not want.box:
        return lambda: target.copy_(rows[0])
    whole = (want.box[0], *want.held.box[1:])
    return lambda: target.copy_(_cut(rows, whole, want.box))


# ---- parts, sent


def _send(plan: ShardPlan, have: Shards) -> Iterator[tuple[Any, torch.Tensor]]:
    """Send others what they could not read, once all have read what they can."""
    for member in plan.members:
        if member != plan.me:
            unread = pickle.loads(plan.store.get(f"unread-{member}"))  # noqa: S301
            to = plan.everyone.index(member)
            for tag, want in enumerate(unread):
                if want.holder == plan.me:
                    local = have[want.name].local
                    rows = local[slice(*want.rows)] if want.box else local.view(1)
                    body = rows.contiguous().cpu().view(-1)
                    yield plan.lines.send([body], to, tag), body


def _receive(plan: ShardPlan, unread: Sequence[_Want], fill: Shards) -> None:
    works = []
    for tag, want in enumerate(unread):
        rows = _make_rows(want)
        source = plan.everyone.index(want.holder)
        works.append((plan.lines.recv([rows.view(-1)], source, tag), rows, want))
    for work, rows, want in works:
        work.wait()
        _filling(_target(fill, want), rows, want)()
