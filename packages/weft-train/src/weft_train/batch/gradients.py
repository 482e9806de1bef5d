"""Squared norms of a step's gradients, measured beside the training.

Measuring costs a pass or two over the gradients, so it is thinned out until it costs less than
three thousandths of a step. With several ranks a measured step is not averaged by
DistributedDataParallel but by hand, so that each rank sees its own gradient first; in all other
steps none of our code runs between forward and optimizer. A Python hook would: torch calls into
Python in every step once a parameter has had one, which made steps of 4 ms a tenth longer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from weft_train.batch.noise import Norms
from weft_train.turns.stopwatch import DeviceClock

COST = 0.003  # of a step that may go into measuring
RAREST = 256
ON_GPU = 32  # how rarely on a GPU, where no clock here sees the cost
DELAY = 8  # steps until a norm is read from a GPU: by then it has come to the CPU by itself


class Gradients:
    """Watches the gradients of a model's parameters on one rank.

    `late` treats norms as a GPU's are: rarely measured, and read some steps later.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        ranks: int,
        clock: DeviceClock,
        *,
        late: bool | None = None,
    ) -> None:
        self._parameters = [p for p in parameters if p.requires_grad]
        self._ranks = ranks
        self._clock = clock
        self._before: torch.Tensor | None = None
        self._own_at = 0.0
        self._few: torch.Tensor | None = None
        self._norms: tuple[torch.Tensor, float, float] | None = None
        self._read_at = 0
        self._copied: Any = None
        self._step = 0
        self._cost = 0.0
        self._late = any(p.is_cuda for p in self._parameters) if late is None else late
        self.every = 1
        self.scale = 1.0  # what the losses of the step were multiplied by
        self.measuring = False
        self.ready: Any = None  # when this rank's own gradient was whole, where that was seen

    def resize(self, ranks: int) -> None:
        """Another number of ranks from here on: what was measured so far is of the old one."""
        self._ranks, self.every, self.measuring = ranks, 1, False
        self._before, self._few, self._norms, self._copied = None, None, None, None

    def begin_step(self, step: int) -> None:
        """A new step: decide whether to measure it."""
        self._step = step
        self.ready = None
        self._few = None
        # Without peers and without accumulation two steps in a row are compared.
        due = step % self.every == 0 and self._norms is None
        self.measuring = due or self._before is not None
        if self.measuring and self._before is None:
            self._cost = 0.0

    def after_first(self, scale: float) -> None:
        """One of several micro-batches was accumulated, its loss scaled by `scale`."""
        if self.measuring and self._ranks == 1:
            began = time.perf_counter()
            self._few = self._measure_sqr() / (scale * scale)
            self._cost += time.perf_counter() - began

    def before_average(self) -> None:
        """The gradient of this rank alone is whole; the mean over the ranks comes next."""
        self.ready = self._clock.now()
        self._own_at = time.perf_counter()
        self._few = self._measure_sqr()

    def after_last(self, total: int, few: float) -> None:
        """The step's gradient is whole: `total` samples, `few` in what was seen before."""
        if not self.measuring:
            return
        # What averaging by hand takes is part of the cost: DDP would have done it on the way.
        began = self._own_at if self._ranks > 1 else time.perf_counter()
        if self._few is not None:
            self._note_norms(torch.stack([self._few, self._measure_sqr()]), few, float(total))
        elif self._ranks == 1:
            self._compare(float(total))
        self._cost += time.perf_counter() - began

    def _compare(self, total: float) -> None:
        now = torch.cat([p.grad.flatten() for p in self._parameters if p.grad is not None])
        now = now if self.scale == 1.0 else now / self.scale
        before, self._before = self._before, None
        if before is None or before.shape != now.shape:
            self._before = now
            return
        first, two, cross = _sqr(before), _sqr(now), torch.dot(before, now).double()
        both = (first + two + 2.0 * cross) / 4.0
        self._note_norms(torch.stack([(first + two) / 2.0, both]), total, 2.0 * total)

    def _note_norms(self, values: torch.Tensor, few: float, many: float) -> None:
        self._read_at = self._step + (DELAY if self._late else 0)
        if values.is_cuda:
            # Reading at once would make the CPU wait for the GPU, and then the GPU for the CPU.
            host = torch.empty(2, dtype=values.dtype, pin_memory=True)
            values = host.copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        self._norms = (values, few, many)

    @property
    def found(self) -> bool:
        """True if `take` has norms to return."""
        return self._norms is not None and self._step >= self._read_at

    def take_norms(self) -> Norms | None:
        """Return the norms of the last measured step, once; the same step on every rank."""
        if self._norms is None or not self.found:
            return None
        (values, few, many), self._norms = self._norms, None
        if self._copied is not None:
            self._copied.synchronize()
        few_sqr, many_sqr = values.tolist()
        return Norms(few_sqr, few, many_sqr, many)

    def choose_interval(self, step_s: float) -> int:
        """Return how rarely to measure from now on, from the time of a step."""
        if self._late:
            return ON_GPU
        if self._cost and step_s > 0.0:
            return int(min(max(self._cost / (COST * step_s), 1.0), RAREST))
        return self.every

    def _measure_sqr(self) -> torch.Tensor:
        held = [p.grad for p in self._parameters if p.grad is not None]
        return torch.nn.utils.get_total_norm(held).double().square() / self.scale**2


def _sqr(flat: torch.Tensor) -> torch.Tensor:
    wide = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    return torch.dot(wide, wide).double()
