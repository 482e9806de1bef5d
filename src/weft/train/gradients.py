"""Squared norms of a step's gradients, measured beside the training.

Measuring costs a pass or two over the gradients, so it is thinned out until it costs less than
three thousandths of a step.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from weft.train.stats import Norms
from weft.train.timing import Clock

COST = 0.003  # of a step that may go into measuring
RAREST = 64
ON_GPU = 32  # how rarely on a GPU, where no clock here sees the cost
DELAY = 8  # steps until a norm is read from a GPU: by then it has come to the CPU by itself


class Gradients:
    """Watches the gradients of a model's parameters on one rank."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], ranks: int, clock: Clock) -> None:
        self._parameters = [p for p in parameters if p.requires_grad]
        self._ranks = ranks
        self._clock = clock
        self._before: torch.Tensor | None = None
        self._few: torch.Tensor | None = None
        self._norms: tuple[torch.Tensor, float, float] | None = None
        self._read_at = 0
        self._copied: Any = None
        self._step = 0
        self._cost = 0.0
        on_gpu = any(p.is_cuda for p in self._parameters)
        self.every = ON_GPU if on_gpu else 1
        self._fixed = on_gpu
        self.measuring = False
        self.ready: Any = None  # when the last of this rank's own gradients was there

    def hook(self, bucket: Any) -> Any:
        """DDP's communication hook: a bucket of this rank's gradients, about to be averaged."""
        buffer = bucket.buffer()
        if self.measuring:
            began = time.perf_counter()
            mine = _sqr(buffer)
            self._few = mine if self._few is None else self._few + mine
            self._cost += time.perf_counter() - began
        if bucket.is_last():
            self.ready = self._clock.now()
        buffer.div_(self._ranks)
        future = dist.all_reduce(buffer, async_op=True).get_future()
        return future.then(_first)

    def begin(self, step: int) -> None:
        """A new step: decide whether to measure it."""
        self._step = step
        self.ready = None
        self._few = None
        self._cost = 0.0
        # Without peers and without accumulation two steps in a row are compared.
        self.measuring = step % self.every == 0 or self._before is not None

    def after_first(self, scale: float) -> None:
        """One of several micro-batches was accumulated, its loss scaled by `scale`."""
        if self.measuring and self._ranks == 1:
            began = time.perf_counter()
            self._few = self._total() / (scale * scale)
            self._cost += time.perf_counter() - began

    def after_last(self, total: int, few: float) -> None:
        """The step's gradient is whole: `total` samples, `few` in what was seen before."""
        if not self.measuring:
            return
        began = time.perf_counter()
        if self._few is not None:
            self._found(torch.stack([self._few, self._total()]), few, float(total))
        elif self._ranks == 1:
            self._compare(float(total))
        self._cost += time.perf_counter() - began

    def _compare(self, total: float) -> None:
        now = torch.cat([p.grad.flatten() for p in self._parameters if p.grad is not None])
        before, self._before = self._before, None
        if before is None or before.shape != now.shape:
            self._before = now
            return
        one, two, cross = _sqr(before), _sqr(now), torch.dot(before, now).double()
        both = (one + two + 2.0 * cross) / 4.0
        self._found(torch.stack([(one + two) / 2.0, both]), total, 2.0 * total)

    def _found(self, values: torch.Tensor, few: float, many: float) -> None:
        self._read_at = self._step
        if values.is_cuda:
            # Reading at once would make the CPU wait for the GPU, and then the GPU for the CPU.
            host = torch.empty(2, dtype=values.dtype, pin_memory=True)
            values = host.copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
            self._read_at += DELAY
        self._norms = (values, few, many)

    def take(self) -> Norms | None:
        """What the last measured step showed, once; the same step on every rank."""
        if self._norms is None or self._step < self._read_at:
            return None
        (values, few, many), self._norms = self._norms, None
        if self._copied is not None:
            self._copied.synchronize()
        few_sqr, many_sqr = values.tolist()
        return Norms(few_sqr, few, many_sqr, many)

    def thin(self, step_s: float) -> int:
        """How rarely to measure from now on, given what a step takes."""
        if not self._fixed and self._cost and step_s > 0.0:
            return int(min(max(self._cost / (COST * step_s), 1.0), RAREST))
        return self.every

    def _total(self) -> torch.Tensor:
        held = [p.grad for p in self._parameters if p.grad is not None]
        return torch.nn.utils.get_total_norm(held).double().square()


def _first(future: torch.futures.Future[Any]) -> torch.Tensor:
    held: torch.Tensor = future.value()[0]
    return held


def _sqr(flat: torch.Tensor) -> torch.Tensor:
    wide = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    return torch.dot(wide, wide).double()
