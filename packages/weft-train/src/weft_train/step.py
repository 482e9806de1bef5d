"""One micro-batch, and with the last one of a step the optimizer's step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from weft_train.batch.gradients import Gradients
from weft_train.batch.noise import GradientNoise
from weft_train.batch.tuner import Rule
from weft_train.data.sampling import Cell
from weft_train.errors import TrainError
from weft_train.ranks.gang import RankGang
from weft_train.turns.gate import Gate
from weft_train.turns.stopwatch import DeviceClock, Stopwatch


@dataclass(frozen=True, slots=True)
class Trained:
    """The model, as the script sees it and as it was given, its optimizer and learning rule."""

    model: Any
    bare: torch.nn.Module
    optimizer: torch.optim.Optimizer
    gradients: Gradients
    rule: Rule
    clip: float | None
    scaler: torch.amp.GradScaler | None = None
    wrapped: bool = False  # the model averages gradients itself, where there are peers

    @property
    def has_batch_norm(self) -> bool:
        """Return true if the model cannot be trained on a single sample."""
        batch_norm = torch.nn.modules.batchnorm._BatchNorm
        return any(isinstance(module, batch_norm) for module in self.bare.modules())


class TrainingStep:
    """The context manager behind `job.step`; `done` is called after each optimizer step."""

    def __init__(
        self,
        gang: RankGang,
        clock: DeviceClock,
        watch: Stopwatch,
        gate: Gate,
        done: Callable[[Cell], None],
    ) -> None:
        self._gang, self._clock, self._watch, self._gate = gang, clock, watch, gate
        self._done = done
        self._trained: Trained | None = None
        self._noise: GradientNoise | None = None
        self.cell: Cell | None = None
        self.loss: torch.Tensor | None = None
        self.stepping = False
        self.steps = 0
        self._propagated = False
        self._began: Any = None
        self._entered = 0.0
        self._last_end: Any = None

    def train(self, trained: Trained, noise: GradientNoise) -> None:
        """Set the model and the noise of the steps."""
        self._trained, self._noise = trained, noise

    def __enter__(self) -> None:
        cell, trained = self.cell, self._trained
        if cell is None or trained is None:
            raise TrainError(
                "job.step() needs a batch",
                hint="use it once for every batch of job.loader, inside job.epochs",
            )
        if cell.first:
            self._gate.wait_for_beat()
        self._gate.enter(*self._gate.gpus)
        self._entered = time.perf_counter()
        if cell.first:
            trained.gradients.begin_step(self.steps)
            if trained.scaler is not None and trained.gradients.measuring:
                trained.gradients.scale = float(trained.scaler.get_scale())
        if trained.wrapped:
            self._prepare(cell, trained)
        self._propagated = False
        self._began = self._clock.now()

    def _prepare(self, cell: Cell, trained: Trained) -> None:
        """Tell DDP whether this backward pass is its to average."""
        peers = self._gang.size > 1
        averaged = peers and cell.last and not self._averages_by_hand(cell, trained)
        if trained.model.require_backward_grad_sync != averaged:  # setting it is not cheap
            trained.model.require_backward_grad_sync = averaged
        synced = peers and not cell.ragged
        if cell.first and trained.model.require_forward_param_sync != synced:
            # Ranks without samples run no forward, so no rank may wait for their buffers.
            trained.model.require_forward_param_sync = synced

    def _averages_by_hand(self, cell: Cell, trained: Trained) -> bool:
        """Return true if DDP does not average: gradients are measured, or some ranks have none."""
        return self._gang.size > 1 and (cell.ragged or trained.gradients.measuring)

    def backward(self, loss: torch.Tensor) -> None:
        """Backpropagate, weighted by the cell's part in the step."""
        cell = self.cell
        if cell is None or self._trained is None:
            raise TrainError("job.backward was called outside job.step()")
        if cell.last or cell.ragged:
            self.loss = loss.detach()
        weighted = loss if cell.weight == 1.0 else loss * cell.weight
        if self._trained.scaler is not None:
            weighted = self._trained.scaler.scale(weighted)
        kind = self._gang.device.type
        if torch.is_autocast_enabled(kind):  # it is for the forward pass alone
            with torch.autocast(kind, enabled=False):
                weighted.backward()  # type: ignore[no-untyped-call]
        else:
            weighted.backward()  # type: ignore[no-untyped-call]
        if cell.first and not cell.last:
            self._trained.gradients.after_first(cell.weight)
        self._propagated = True

    def skip(self) -> None:
        """The step of a rank that has no part in it."""
        self.__enter__()
        self._propagated = True
        self.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        cell, trained = self.cell, self._trained
        self.cell = None
        if kind is not None or cell is None or trained is None:
            self._free(time.perf_counter() - self._entered)
            return
        if not self._propagated:
            self._free(time.perf_counter() - self._entered)
            raise TrainError(
                "job.step() ended without job.backward(loss)",
                hint="call job.backward(loss) once inside it",
            )
        if cell.last:
            self._optimize(cell, trained)
        self._note_times(cell, trained)
        used = time.perf_counter() - self._entered
        if self._gate.guarded:
            self._clock.call_when_done(lambda: self._free(used))
        if cell.last:
            self.steps += 1
            self._done(cell)

    def refuse_others(self, *_: Any) -> None:
        """Called before every step of the optimizer: this alone may take them."""
        if not self.stepping:
            raise TrainError(
                "optimizer.step() was called by the script",
                hint="job.step() steps and clears the optimizer itself; remove the calls",
            )

    def fill_optimizer(self, trained: Trained) -> None:
        """Make the optimizer's own tensors and what the device needs, by a step of no account."""
        for parameter in trained.bare.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        self.stepping = True
        try:
            trained.optimizer.step()
        finally:
            self.stepping = False
        trained.optimizer.zero_grad(set_to_none=True)
        if self._gang.device.type == "cuda":  # its libraries are loaded when they are first used
            some = torch.ones(64, 64, device=self._gang.device, requires_grad=True)
            (some @ some).sum().backward()  # type: ignore[no-untyped-call]

    def resize(self, steps: int) -> None:
        """Other ranks from here on, after that many steps of the job."""
        self.steps, self._last_end = steps, None

    def measure_sync_s(self) -> float:
        """Seconds of a step from a rank's own gradient to the optimizer's step; 0 for one rank."""
        own, whole = self._watch.median("grad_s"), self._watch.median("last_s")
        return max(whole - own, 0.0) if self._gang.size > 1 and own else 0.0

    def _free(self, used_s: float) -> None:
        self._gate.leave(*self._gate.gpus, used_s=used_s)

    def _optimize(self, cell: Cell, trained: Trained) -> None:
        if self._averages_by_hand(cell, trained):
            if not cell.ragged:
                trained.gradients.before_average()
            self._gang.average(p for p in trained.bare.parameters() if p.requires_grad)
        if not cell.ragged:
            alone = self._gang.size == 1
            few = cell.stop - cell.start if alone else cell.total / self._gang.size
            trained.gradients.after_last(cell.total, float(few))
        if trained.scaler is not None:
            trained.scaler.unscale_(trained.optimizer)
        if trained.clip is not None:
            torch.nn.utils.clip_grad_norm_(trained.bare.parameters(), trained.clip)
        factor = 1.0 if self._noise is None else trained.rule(self._noise, float(cell.total))
        self.stepping = True
        try:
            _scaled_step(trained, factor)
        finally:
            self.stepping = False
        trained.optimizer.zero_grad(set_to_none=True)

    def _note_times(self, cell: Cell, trained: Trained) -> None:
        end = self._clock.now()
        if not cell.last or self._gang.size == 1:
            self._watch.add_span("grad_s", self._began, end)
        elif trained.gradients.ready is not None:
            self._watch.add_span("grad_s", self._began, trained.gradients.ready)
        if cell.last:
            self._watch.add_span("last_s", self._began, end)
            if self._last_end is not None:
                # By the device's clock: the CPU runs far ahead of a GPU whose queue is not full.
                self._watch.add_span("step_s", self._last_end, end)
            self._last_end = end


def _scaled_step(trained: Trained, factor: float) -> None:
    """A step with learning rates multiplied for this once: schedules see their own values."""
    groups = trained.optimizer.param_groups
    before = [group["lr"] for group in groups]
    if factor != 1.0:
        for group in groups:
            group["lr"] = group["lr"] * factor
    try:
        if trained.scaler is None:
            trained.optimizer.step()
        else:
            trained.scaler.step(trained.optimizer)
            trained.scaler.update()
    finally:
        for group, lr in zip(groups, before, strict=True):
            group["lr"] = lr
