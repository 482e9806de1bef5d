"""A job's state from one process to another: a skeleton in a header, and the tensors.

Point to point, so that no rank waits for a third: old and new ranks must not meet in a collective
before all old ones have agreed. Tensors are read by the new rank out of the old one's memory where
that is possible, in place; where it is not they are sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from weft_train.ranks.peer_memory import (
    Origin,
    check_origin,
    name_gpu,
    open_memory,
    open_on_gpu,
    read_spans,
    share_on_gpu,
)
from weft_train.ranks.pickled import pack, unpack

log = logging.getLogger(__name__)

LARGE = 256 << 10  # bytes from which on a tensor is sent by itself
AHEAD = 4  # tensors on the way at once
HEADER, ANSWER, BODY, VERDICT = 1, 2, 3, 4  # what a message is
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Sent:
    """The place of a tensor that is not in the header.

    `address` is where it is in the sender's memory, `handle` opens it on the sender's GPU.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    address: int
    handle: Any = None


def send_state(
    group: Any, to: Sequence[int], state: Any, device: torch.device = CPU, *, direct: bool = True
) -> int:
    """Everything in `state`, to ranks of the group; the bytes of its tensors."""
    tensors: list[torch.Tensor] = []
    skeleton = _take_out(state, tensors)
    with open_memory(device) as origin:
        header = pack((origin if direct else None, skeleton))
        for rank in to:
            group.send([torch.tensor([header.numel()])], rank, HEADER).wait()
            group.send([header], rank, HEADER).wait()
        have = {rank: _receive_flag(group, rank, ANSWER) for rank in to}
    for rank in to:
        if not have[rank]:
            _send_bodies(group, rank, tensors)
    return sum(tensor.nbytes for tensor in tensors)


def receive_state(group: Any, source: int, own: Any, device: torch.device = CPU) -> Any:
    """Receive from `send_state`; tensors that `own` has in the same place are filled there."""
    size = torch.zeros(1, dtype=torch.int64)
    group.recv([size], source, HEADER).wait()
    header = torch.empty(int(size), dtype=torch.uint8)
    group.recv([header], source, HEADER).wait()
    origin, skeleton = unpack(header)
    slots: list[_Slot] = []
    state = _put_in(skeleton, own, slots)
    have = origin is not None and _read_bodies(origin, slots, device)
    _send_flag(group, source, ANSWER, have)
    if not have:
        _receive_bodies(group, source, slots)
    return state


def send_verdict(group: Any, to: int, *, good: bool) -> None:
    """Tell a new rank whether all old ranks agreed, so that it may begin."""
    _send_flag(group, to, VERDICT, good)


def receive_verdict(group: Any, source: int) -> bool:
    """Receive from `send_verdict`."""
    return _receive_flag(group, source, VERDICT)


def find_tensors(state: Any) -> Iterator[torch.Tensor]:
    """Every tensor in lists, tuples and dictionaries."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for item in state.values():
            yield from find_tensors(item)
    elif isinstance(state, (list, tuple)):
        for item in state:
            yield from find_tensors(item)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A tensor's place, and where its values are."""

    belongs: torch.Tensor
    sent: Sent


def _send_flag(group: Any, to: int, what: int, flag: bool) -> None:
    group.send([torch.tensor([float(flag)])], to, what).wait()


def _receive_flag(group: Any, source: int, what: int) -> bool:
    flag = torch.zeros(1)
    group.recv([flag], source, what).wait()
    return bool(flag.item())


# ---- the skeleton


def _take_out(state: Any, tensors: list[torch.Tensor]) -> Any:
    """Replace tensors of a state by places, and collect them whole and contiguous."""
    if isinstance(state, torch.Tensor):
        whole = state.detach().contiguous()
        tensors.append(whole)
        handle = share_on_gpu(whole) if whole.is_cuda else None
        address = whole.data_ptr() if whole.device == CPU else 0
        return Sent(tuple(whole.shape), whole.dtype, address, handle)
    if type(state) is dict:
        return {key: _take_out(item, tensors) for key, item in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_take_out(item, tensors) for item in state)
    if isinstance(state, dict):  # an OrderedDict, with what it knows of itself
        return type(state)((key, _take_out(item, tensors)) for key, item in state.items())
    return state


def _put_in(value: Any, own: Any, slots: list[_Slot]) -> Any:
    if isinstance(value, Sent):
        held = own if _is_alike(own, value) else torch.empty(value.shape, dtype=value.dtype)
        slots.append(_Slot(held.detach(), value))
        return held
    if isinstance(value, dict):
        named = own if isinstance(own, dict) else {}
        pairs = ((key, _put_in(item, named.get(key), slots)) for key, item in value.items())
        return type(value)(pairs)
    if type(value) in (list, tuple):
        mine = (
            own
            if isinstance(own, (list, tuple)) and len(own) == len(value)
            else [None] * len(value)
        )
        return type(value)(
            _put_in(item, held, slots) for item, held in zip(value, mine, strict=True)
        )
    return value


def _is_alike(own: Any, sent: Sent) -> bool:
    return (
        isinstance(own, torch.Tensor) and tuple(own.shape) == sent.shape and own.dtype == sent.dtype
    )


# ---- the tensors, read by the receiving rank


def _read_bodies(origin: Origin, slots: Sequence[_Slot], device: torch.device) -> bool:
    """Read all out of the sender's memory; False if that cannot be done."""
    try:
        check_origin(origin)
        later = _read_all(origin, slots, device)
    except (OSError, RuntimeError) as error:
        log.info("the state is sent, as it cannot be read: %s", error)
        return False
    for fill in later:
        fill()
    return True


def _read_all(
    origin: Origin, slots: Sequence[_Slot], device: torch.device
) -> list[Callable[[], object]]:
    """Read tensors in place; return the copies that are left to do."""
    later: list[Callable[[], object]] = []
    spans = []
    own_gpu = name_gpu(device)
    for slot in slots:
        if slot.sent.handle is not None and origin.gpu == own_gpu:
            slot.belongs.copy_(open_on_gpu(slot.sent.handle))
        elif slot.belongs.numel():
            if not slot.sent.address:
                raise OSError("a tensor is on another GPU, or cannot be shared")
            flat = _make_flat(slot)
            spans.append((flat.data_ptr(), slot.sent.address, flat.nbytes))
            _fill_later(slot, flat, later)
    read_spans(origin, spans)
    if own_gpu:
        torch.cuda.synchronize(device)
    return later


def _make_flat(slot: _Slot) -> torch.Tensor:
    """The slot's own memory if it can be filled as it is, else as much elsewhere."""
    held = slot.belongs
    if held.device == CPU and held.is_contiguous():
        return held.view(-1)
    return torch.empty(held.numel(), dtype=held.dtype)


def _fill_later(slot: _Slot, flat: torch.Tensor, later: list[Callable[[], object]]) -> None:
    held = slot.belongs
    if flat.data_ptr() != held.data_ptr():
        later.append(lambda: held.copy_(flat.view(held.shape)))


# ---- the tensors, sent


def _send_bodies(group: Any, to: int, tensors: Sequence[torch.Tensor]) -> None:
    small = [_bytes_of(body.cpu()) for body in tensors if body.nbytes < LARGE]
    works: list[tuple[Any, torch.Tensor]] = []
    packed = torch.cat(small) if small else torch.empty(0, dtype=torch.uint8)
    for tensor in (packed, *(body for body in tensors if body.nbytes >= LARGE)):
        if not tensor.numel():
            continue
        flat = tensor.cpu().view(-1)
        works.append((group.send([flat], to, BODY), flat))
        if len(works) > AHEAD:
            works.pop(0)[0].wait()
    for work, _ in works:
        work.wait()


def _receive_bodies(group: Any, source: int, slots: Sequence[_Slot]) -> None:
    small = [slot for slot in slots if _size_of(slot) < LARGE]
    _receive_small(group, source, small)
    works: list[tuple[Any, _Slot, torch.Tensor]] = []
    for slot in slots:
        if _size_of(slot) >= LARGE:
            flat = _make_flat(slot)
            works.append((group.recv([flat], source, BODY), slot, flat))
            if len(works) > AHEAD:
                _finish(*works.pop(0))
    for work, slot, flat in works:
        _finish(work, slot, flat)


def _receive_small(group: Any, source: int, slots: Sequence[_Slot]) -> None:
    sizes = [_size_of(slot) for slot in slots]
    packed = torch.empty(sum(sizes), dtype=torch.uint8)
    if not packed.numel():
        return
    group.recv([packed], source, BODY).wait()
    for slot, part in zip(slots, torch.split(packed, sizes), strict=True):
        # Where a part begins in the packet says nothing about how its type wants to be aligned.
        slot.belongs.copy_(part.clone().view(slot.belongs.dtype).view(slot.belongs.shape))


def _finish(work: Any, slot: _Slot, flat: torch.Tensor) -> None:
    work.wait()
    if flat.data_ptr() != slot.belongs.data_ptr():
        slot.belongs.copy_(flat.view(slot.belongs.shape))


def _size_of(slot: _Slot) -> int:
    return slot.belongs.nbytes


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)
