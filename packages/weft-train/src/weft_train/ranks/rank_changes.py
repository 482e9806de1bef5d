"""Changes of ranks during training: everything that counts ranks starts over."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from weft_train.control import Control, StepCommand
from weft_train.ranks.gang import RankGang
from weft_train.ranks.live_resize import LiveResize, ResizableTraining
from weft_train.ranks.transfer import find_tensors
from weft_train.step import Trained, TrainingStep
from weft_train.turns.stopwatch import Stopwatch


class RankChanges:
    """The parts of one rank's training that a change concerns."""

    def __init__(
        self,
        gang: RankGang,
        live: LiveResize,
        control: Control,
        step: TrainingStep,
        watch: Stopwatch,
    ) -> None:
        self._gang, self._live, self._control = gang, live, control
        self._step, self._watch = step, watch

    def prepare(self, job: ResizableTraining, trained: Trained, steps: int) -> int:
        """Let ranks come and go from here on; a new one joins the others. The steps done."""
        if not self._live.wanted:
            return steps
        if trained.wrapped:
            fix_buckets(trained.model)
        if self._gang.joining:
            self._step.fill_optimizer(trained)
            steps = self._live.join(job)
            self._reset_steps(trained, steps)
        self._live.offer(measure_gb(job.collect_state()))
        return steps

    def carry_out(
        self, order: StepCommand, job: ResizableTraining, trained: Trained, ended: float, steps: int
    ) -> bool:
        """Carry out what all agreed on after a step; return true if this rank stays."""
        self._control.settle(trained.gradients, self._watch)
        if order.drop:
            self._live.give_up()
            return True
        changed = self._live.switch(job, ended, steps)
        if changed:
            self._reset_steps(trained, steps)
        return changed is not None

    def _reset_steps(self, trained: Trained, steps: int) -> None:
        if trained.wrapped:
            move_to(trained.model, self._gang.data)
        trained.gradients.resize(self._gang.size)
        self._control.resize(self._gang.size)
        self._step.resize(steps)
        self._watch.clear()


def measure_gb(state: Any) -> float:
    """The tensors of a state."""
    return sum(tensor.nbytes for tensor in find_tensors(state)) / 1e9


def fix_buckets(model: DistributedDataParallel) -> None:
    """Fix the order in which gradients are averaged, the same on every rank forever.

    After the first step DistributedDataParallel regroups parameters in the order in which their
    gradients came. Ranks that join later would group them otherwise, and then sums of different
    lengths meet: the process is gone. So one backward skip zeros, from the last parameter to
    the first, fixes the groups before training begins, on those that begin and on those that join.
    """
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
