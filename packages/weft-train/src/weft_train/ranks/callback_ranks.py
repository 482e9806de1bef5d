"""Ranks that come and go in a training whose loop another library owns.

The libraries' loops know one set of ranks. So the change is made between
two steps, when the loop asks for the next samples. Old ranks switch there, and a new one, which ran
the script up to the same line, waits there for their state: the model's and the optimizers', and
through `Library` that of the loop itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from weft_train.base.environment import Environment
from weft_train.base.messages import Drop, FromAgent, GroupPlan
from weft_train.checkpoints.saver import take_model
from weft_train.data.sample_order import SampleOrder
from weft_train.errors import TrainError
from weft_train.ranks.gang import RankGang
from weft_train.ranks.groups import fix_buckets, move_to
from weft_train.ranks.live_resize import LiveResize
from weft_train.ranks.transfer import find_tensors
from weft_train.reports import Reports

STOP, SAVE, READY, FAILED = range(4)  # the vector that is summed over the ranks, by position


class Library(Protocol):
    """The loop of a library, as far as its ranks matter."""

    def collect_loop(self) -> dict[str, Any]:
        """Counters, schedules and the like, which a new rank must have."""
        ...

    def take_loop(self, state: dict[str, Any]) -> None:
        """Go on from what another rank collected."""
        ...

    def change_place(self, rank: int, ranks: int) -> None:
        """Tell the library which rank this is now, and of how many."""
        ...


class CallbackRanks:
    """The ranks of one such training. `can_change` says whether they may come and go."""

    def __init__(self, env: Environment, reports: Reports) -> None:
        self.gang = RankGang(env)
        self._reports = reports
        self._live = LiveResize(env, self.gang, reports)
        self.can_change = self._live.wraps
        self._switching = False
        self._steps, self._ended = 0, 0.0
        if self.can_change and self.gang.alone:
            self.gang.form_alone()

    def refuse_live_change(self, why: str) -> None:
        """Let a stop and a start change the ranks, and say why."""
        self.can_change = False
        if self.gang.joining:
            raise TrainError(f"this rank cannot join: {why}")
        if self.gang.rank == 0:
            self._reports.report_restart(why)

    def begin(
        self,
        model: DistributedDataParallel,
        optimizers: Sequence[torch.optim.Optimizer],
        order: SampleOrder,
        library: Library,
    ) -> None:
        """Training begins, on this model with these samples."""
        self._model, self._optimizers = model, optimizers
        self._order, self._library = order, library
        fix_buckets(model)
        order.between, self._epoch = self._between, -1
        self._set_place()
        if self.gang.joining:
            for optimizer in optimizers:
                _fill(optimizer)
        else:
            self._offer()

    def on_message(self, message: FromAgent) -> None:
        """Handle what the agent says about other ranks."""
        if isinstance(message, (GroupPlan, Drop)):
            self._live.on_message(message)
        if isinstance(message, GroupPlan) and (
            why := self._order.cannot_deal(len(message.members))
        ):
            self._live.say_cannot_switch(why)

    def agree(self, steps: int, stop: bool, save: bool) -> tuple[bool, bool]:
        """Return true where any rank was asked to stop, or wants to save; the same on all ranks."""
        self._steps, self._ended = steps, time.monotonic()
        self.gang.begin_sum([stop, save, *self._live.flags])
        agreed = self.gang.read_sum() or []
        if agreed[READY] + agreed[FAILED] == self.gang.size:
            self._switching = not agreed[FAILED]
            if agreed[FAILED]:
                self._live.give_up()
        return agreed[STOP] > 0.0, agreed[SAVE] > 0.0

    def collect_state(self) -> dict[str, Any]:
        """Return all that a new rank needs, without random numbers."""
        return {
            "counts": {"steps": self._steps},
            "model": self._model.module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "order": self._order.state_dict(),
            "loop": self._library.collect_loop(),
        }

    def take_state(self, state: dict[str, Any]) -> None:
        """Go on as the rank that collected this; large tensors are in their places already."""
        take_model(self._model.module, state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self._order.load_state_dict(state["order"])
        self._library.take_loop(state["loop"])

    def _between(self) -> bool:
        """Between two steps: join, or switch if that was agreed; return true if ranks changed."""
        if self.gang.joining:
            self._steps = self._live.join(self, self._model.module)
            self._offer()
        elif self._switching:
            self._switching = False
            changed = self._live.switch(self, self._ended, self._steps)
            if changed is None:
                self._reports.send_last_word("resized")
                raise SystemExit(0)
        if self.gang.epoch == self._epoch:
            return False
        self._set_place()
        return True

    def _offer(self) -> None:
        self._live.shapes.watch(self._model.module)
        self._live.offer(sum(part.nbytes for part in find_tensors(self.collect_state())) / 1e9)

    def _set_place(self) -> None:
        rank, size = self.gang.rank, self.gang.size
        self._order.change_ranks(rank, size)
        self._library.change_place(rank, size)
        # Alone there is nothing to average; with others the model does so in every last backward.
        self._model.require_backward_grad_sync = not self.gang.alone
        if self._epoch >= 0:
            move_to(self._model, self.gang.data)
        self._epoch = self.gang.epoch


def _fill(optimizer: torch.optim.Optimizer) -> None:
    """Make the optimizer's own tensors by a step of no account, before others wait for it."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
