"""A job's state from one process to another: large tensors in place, everything else in a header.

Point to point, so that nobody waits for a third: old and new ranks must not meet in a collective
before all old ones have agreed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

LARGE = 256 << 10  # bytes from which on a tensor is sent by itself
AHEAD = 4  # tensors on the way at once
HEADER, BODY, VERDICT = 1, 2, 3  # what a message is


@dataclass(frozen=True, slots=True)
class Sent:
    """The place of a tensor that follows the header."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def send_state(group: Any, to: int, state: Any) -> int:
    """Everything in `state`, to a rank of the group; the bytes of the large tensors."""
    large: list[torch.Tensor] = []
    header = _pack(_take_out(state, large))
    group.send([torch.tensor([header.numel()])], to, HEADER).wait()
    group.send([header], to, HEADER).wait()
    works: list[tuple[Any, torch.Tensor]] = []
    for tensor in large:
        flat = _flat_on_cpu(tensor)
        works.append((group.send([flat], to, BODY), flat))
        if len(works) > AHEAD:
            works.pop(0)[0].wait()
    for work, _ in works:
        work.wait()
    return sum(tensor.nbytes for tensor in large)


def receive_state(group: Any, source: int, own: Any) -> Any:
    """What `send_state` sent; tensors that `own` has alike in the same place are filled there."""
    size = torch.zeros(1, dtype=torch.int64)
    group.recv([size], source, HEADER).wait()
    header = torch.empty(int(size), dtype=torch.uint8)
    group.recv([header], source, HEADER).wait()
    skeleton = _unpack(header)
    slots: list[_Slot] = []
    state = _put_in(skeleton, own, slots)
    works: list[tuple[Any, _Slot]] = []
    for slot in slots:
        works.append((group.recv([slot.flat], source, BODY), slot))
        if len(works) > AHEAD:
            _finish(*works.pop(0))
    for work, slot in works:
        _finish(work, slot)
    return state


def send_verdict(group: Any, to: int, *, good: bool) -> None:
    """Whether all old ranks agreed: the new rank may begin."""
    group.send([torch.tensor([float(good)])], to, VERDICT).wait()


def receive_verdict(group: Any, source: int) -> bool:
    """What `send_verdict` sent."""
    told = torch.zeros(1)
    group.recv([told], source, VERDICT).wait()
    return bool(told.item())


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
    """Where a tensor is received, and where it belongs if that is elsewhere."""

    flat: torch.Tensor
    belongs: torch.Tensor | None


def _take_out(state: Any, large: list[torch.Tensor]) -> Any:
    if isinstance(state, torch.Tensor):
        if state.nbytes < LARGE:
            return state.detach().cpu()
        large.append(state.detach())
        return Sent(tuple(state.shape), state.dtype)
    if type(state) is dict:
        return {key: _take_out(item, large) for key, item in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_take_out(item, large) for item in state)
    if isinstance(state, dict):  # an OrderedDict, with what it knows of itself
        return type(state)((key, _take_out(item, large)) for key, item in state.items())
    return state


def _put_in(told: Any, own: Any, slots: list[_Slot]) -> Any:
    if isinstance(told, Sent):
        return _make_slot(told, own, slots)
    if isinstance(told, torch.Tensor):
        if _is_alike(own, tuple(told.shape), told.dtype):
            own.detach().copy_(told)
            return own
        return told
    if isinstance(told, dict):
        named = own if isinstance(own, dict) else {}
        pairs = ((key, _put_in(item, named.get(key), slots)) for key, item in told.items())
        return type(told)(pairs)
    if type(told) in (list, tuple):
        mine = (
            own if isinstance(own, (list, tuple)) and len(own) == len(told) else [None] * len(told)
        )
        return type(told)(_put_in(item, held, slots) for item, held in zip(told, mine, strict=True))
    return told


def _make_slot(told: Sent, own: Any, slots: list[_Slot]) -> torch.Tensor:
    if not _is_alike(own, told.shape, told.dtype):
        made = torch.empty(told.shape, dtype=told.dtype)
        slots.append(_Slot(made.view(-1), None))
        return made
    held: torch.Tensor = own.detach()
    if held.device.type == "cpu" and held.is_contiguous():
        slots.append(_Slot(held.view(-1), None))
    else:
        slots.append(_Slot(torch.empty(held.numel(), dtype=held.dtype), held))
    result: torch.Tensor = own
    return result


def _is_alike(own: Any, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    return isinstance(own, torch.Tensor) and tuple(own.shape) == shape and own.dtype == dtype


def _finish(work: Any, slot: _Slot) -> None:
    work.wait()
    if slot.belongs is not None:
        slot.belongs.copy_(slot.flat.view(slot.belongs.shape))


def _flat_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().view(-1)


def _pack(skeleton: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(skeleton, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _unpack(header: torch.Tensor) -> Any:
    # From another rank of this job, as what it gathers and broadcasts in any case.
    return torch.load(io.BytesIO(header.numpy().tobytes()), weights_only=False)
