"""What a training does when its ranks change: everything that counts ranks begins anew."""

from __future__ import annotations

from typing import Any

from weft.train.control import Control, Order
from weft.train.ranks.buckets import fix_buckets, move_to
from weft.train.ranks.gang import Gang
from weft.train.ranks.live_resize import LiveResize, Resizable
from weft.train.ranks.transfer import find_tensors
from weft.train.step import Step, Trained
from weft.train.turns.stopwatch import Stopwatch


class RankChanges:
    """The parts of one rank's training that a change concerns."""

    def __init__(
        self, gang: Gang, live: LiveResize, control: Control, step: Step, watch: Stopwatch
    ) -> None:
        self._gang, self._live, self._control = gang, live, control
        self._step, self._watch = step, watch

    def prepare(self, job: Resizable, trained: Trained, steps: int) -> int:
        """Let ranks come and go from here on; a new one joins the others. The steps done."""
        if not self._live.wanted:
            return steps
        if trained.wrapped:
            fix_buckets(trained.model)
        if self._gang.joining:
            self._step.fill_optimizer(trained)
            steps = self._live.join(job)
            self._begin_anew(trained, steps)
        self._live.offer(measure_gb(job.collect_state()))
        return steps

    def carry_out(
        self, order: Order, job: Resizable, trained: Trained, ended: float, steps: int
    ) -> bool:
        """What all agreed on after a step that ended then; whether this rank is one still."""
        self._control.settle(trained.gradients, self._watch)
        if order.drop:
            self._live.give_up()
            return True
        changed = self._live.switch(job, ended, steps)
        if changed:
            self._begin_anew(trained, steps)
        return changed is not None

    def _begin_anew(self, trained: Trained, steps: int) -> None:
        if trained.wrapped:
            move_to(trained.model, self._gang.data)
        trained.gradients.resize(self._gang.size)
        self._control.resize(self._gang.size)
        self._step.resize(steps)
        self._watch.clear()


def measure_gb(state: Any) -> float:
    """The tensors of a state."""
    return sum(tensor.nbytes for tensor in find_tensors(state)) / 1e9
