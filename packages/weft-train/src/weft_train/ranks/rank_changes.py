"""Changes of ranks during training: everything that counts ranks starts over."""

from __future__ import annotations

from typing import Any

from weft_train.control import Control, StepCommand
from weft_train.ranks.gang import RankGang
from weft_train.ranks.groups import fix_buckets, move_to
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
            steps = self._live.join(job, trained.bare)
            self._reset_steps(trained, steps)
        self._live.shapes.watch(trained.bare)
        self._live.offer(measure_gb(job.collect_state()))
        return steps

    def carry_out(
        self, order: StepCommand, job: ResizableTraining, trained: Trained, ended: float, steps: int
    ) -> bool:
        """Carry out what all agreed on after a step; return true if this rank stays."""
        self._control.finish_exchange(trained.gradients, self._watch)
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
