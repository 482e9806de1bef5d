"""A new rank's first pass over its model, with zeros, before others wait for it.

Kernels are loaded, compiled and chosen, and memory is taken, when a model is first used. The old
ranks note what theirs was called with, shapes and types alone, and new ranks call it with zeros of
the same, forward and backward, while the others train on. Nothing of it stays: the model's state
and the random numbers come from the old ranks afterwards.
"""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from typing import Any

import torch

from weft_train.ranks.groups import is_compiled
from weft_train.ranks.transfer import find_tensors

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20  # a description is small; tensors in objects of other classes are not


@dataclass(frozen=True, slots=True)
class _Like:
    """A tensor that a model was called with; `moved` if it was where the model is."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    moved: bool


class CallShapes:
    """Arguments of a model's first call, described in bytes for new ranks; none before that."""

    def __init__(self) -> None:
        self.packed = b""
        self._handle: Any = None

    def watch(self, model: torch.nn.Module) -> None:
        """Note the next call."""
        if not is_compiled(model):
            self._handle = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, model: torch.nn.Module, args: Any, named: Any) -> None:
        if not model.training:
            return
        self._handle.remove()
        at = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        cast = torch.get_autocast_dtype(at.type) if torch.is_autocast_enabled(at.type) else None
        try:
            packed = pickle.dumps((_describe((args, named), at), cast))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            log.info("new ranks begin cold: what the model is called with: %s", error)
            return
        self.packed = packed if len(packed) <= MOST_BYTES else b""


def rehearse(model: torch.nn.Module, packed: bytes, device: torch.device) -> bool:
    """Call the model as others call theirs, on zeros; false if that cannot be done."""
    if not packed:
        return False
    try:
        # From another rank of this job.
        like, cast = pickle.loads(packed)  # noqa: S301
        args, named = _make(like, device)
        with torch.autocast(device.type, dtype=cast, enabled=cast is not None):
            called = model(*args, **named)
        results = [tensor for tensor in find_tensors(called) if tensor.requires_grad]
        held = [parameter for parameter in model.parameters() if parameter.requires_grad]
        total = torch.stack([result.float().sum() for result in results]).sum()
        # Not `backward`: hooks of others wait for gradients that are stored.
        torch.autograd.grad(total, held, allow_unused=True)
    except Exception as error:  # whatever a model makes of zeros, it trains
        log.info("this rank begins cold: a pass over zeros failed: %s", error)
        return False
    return True


def _describe(value: Any, at: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return _Like(tuple(value.shape), value.dtype, value.device == at)
    if isinstance(value, dict):
        return {key: _describe(item, at) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_describe(item, at) for item in value)
    return value


def _make(value: Any, device: torch.device) -> Any:
    if isinstance(value, _Like):
        where = device if value.moved else torch.device("cpu")
        return torch.zeros(value.shape, dtype=value.dtype, device=where)
    if isinstance(value, dict):
        return {key: _make(item, device) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_make(item, device) for item in value)
    return value
