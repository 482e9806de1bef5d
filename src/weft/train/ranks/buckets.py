"""The order in which DistributedDataParallel averages gradients, the same on every rank for ever.

After the first step it groups parameters anew, in the order in which their gradients came. Ranks
that join later would group them otherwise, and then sums of different lengths meet: the process is
gone. So one backward pass over zeros, from the last parameter to the first, fixes the groups before
training begins, on those that begin and on those that join.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def fix_buckets(model: DistributedDataParallel) -> None:
    """Group the parameters for good; gradients are none afterwards."""
    inner = model.module
    held = [p for p in inner.parameters() if p.requires_grad]
    before = [p.grad for p in held]
    sync = model.require_backward_grad_sync
    model.require_backward_grad_sync = True
    model.require_forward_param_sync = False  # what stands in for the model has no buffers
    model.module = _Touch(held)
    try:
        model(torch.zeros((), device=held[0].device)).backward()
    finally:
        model.module = inner
        model.require_backward_grad_sync = sync
    model.reducer._rebuild_buckets()
    model._has_rebuilt_buckets = True
    for parameter, gradient in zip(held, before, strict=True):
        parameter.grad = gradient


def move_to(model: DistributedDataParallel, group: Any) -> None:
    """Average over another group from here on; the groups of parameters stay."""
    model.process_group = group
    model.reducer._update_process_group(group)


def can_fix(model: DistributedDataParallel) -> bool:
    """Whether its groups can be fixed: not those of a graph that torch takes for static."""
    return not model.static_graph


class _Touch(torch.nn.Module):
    """Gives every parameter a gradient of zero, the last one first."""

    def __init__(self, held: list[torch.nn.Parameter]) -> None:
        super().__init__()
        self._held = (held,)  # not its own parameters

    def forward(self, start: torch.Tensor) -> torch.Tensor:
        """A sum that depends on all of them, by nothing."""
        total = start
        for parameter in self._held[0]:  # what is made last is undone first
            total = total + parameter.reshape(-1)[0].to(start.dtype) * 0.0
        return total
