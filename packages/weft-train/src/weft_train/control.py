"""Decisions of all ranks at the end of a step: stop, save, another batch or other ranks."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from weft_train.base.messages import Adjust, Drop, GroupPlan, Shift, Stop, Turns
from weft_train.batch.gradients import Gradients
from weft_train.batch.noise import GradientNoise, Norms
from weft_train.batch.tuner import BatchTuner
from weft_train.checkpoints.save_times import SaveTimes
from weft_train.data.sampling import StepBatch
from weft_train.ranks.gang import RankGang
from weft_train.ranks.live_resize import LiveResize
from weft_train.reports import Reports
from weft_train.stopping import StopRequest
from weft_train.turns.gate import Gate
from weft_train.turns.stopwatch import Stopwatch

# The vector that is summed over the ranks, by position.
STOP, SAVE, TOTAL, PER_GPU, MICROS, EVERY, REST, MEASURED, FEW_SQR, MANY_SQR = range(10)
TURN, GUARDED, SHIFTED, PERIOD_S, SHIFT_S, READY, FAILED, WIDTH = range(10, 18)

TUNE_STEPS = 20
TUNE_S = 1.0
# Ranks with shorter steps exchange about this often, not every step: over gloo an exchange costs
# some 0.7 ms of CPU, which is three thousandths of this.
TALK_S = 0.25
LOOK_S = 0.02  # a rank without peers asks what its agent said this often
RAREST = 64
FIRST = 64  # steps in which everything is measured until there is something to go by


class StepCommand(NamedTuple):
    """The actions of every rank now."""

    stop: bool = False
    save: bool = False
    switch: bool = False  # to the next epoch of ranks
    drop: bool = False  # that epoch


NOTHING = StepCommand()


class Control:
    """One rank's part in the decisions. Rank 0 proposes batches and checkpoints."""

    batch: StepBatch
    tuner: BatchTuner

    def __init__(
        self,
        gang: RankGang,
        reports: Reports,
        stop: StopRequest,
        saves: SaveTimes,
        gate: Gate,
        live: LiveResize,
    ) -> None:
        self._gang, self._reports, self._stop, self._gate = gang, reports, stop, gate
        self._live = live
        self._turns: Turns | None = None
        self._turning: Turns | None = None
        self._shift: Shift | None = None
        self._saves = saves
        self._noise: GradientNoise | None = None
        self._chosen: StepBatch | None = None
        self._sizes: tuple[float, float] | None = None
        self._tuned = (0, 0.0)
        self._steps = 0
        self._rest = 1  # steps from one exchange to the next
        self._next = 1
        self._look_at = 0.0
        self.unsaved = False

    def begin_tuning(self, tuner: BatchTuner, noise: GradientNoise, total: int) -> None:
        """Choose the first batch: what was trained on before, or better for this many ranks."""
        self.tuner, self._noise = tuner, noise
        first = tuner.fit_total(total) if total else tuner.choose_first()
        # A profile of another kind of device may differ by rank; rank 0's choice holds.
        self.batch = self._gang.broadcast(tuner.find_best(noise, first))

    def begin(self) -> None:
        """Training begins: checkpoints are due from now on."""
        self._saves.start_clock()
        self._tuned = (self._steps, time.monotonic())

    def note_saved(self, took_s: float) -> None:
        """A checkpoint was taken now, in that many seconds."""
        self.unsaved = False
        self._saves.note_saved(took_s)

    def exchange(self, gradients: Gradients, watch: Stopwatch) -> StepCommand:
        """Tell the others, hear what was agreed the last time, and take it up."""
        self._steps += 1
        self.unsaved = True
        if self._gang.size == 1:
            if self._has_nothing_to_decide(gradients):
                return NOTHING
            self._receive()
            wishes, sizes = self._make_wishes(gradients, watch)
            return self._apply(wishes, sizes, gradients, watch)
        if self._steps < self._next:
            return NOTHING
        self._receive()
        wishes, sizes = self._make_wishes(gradients, watch)
        agreed, before = self._gang.read_sum(), self._sizes
        self._gang.begin_sum(wishes)
        self._sizes = sizes
        order = NOTHING if agreed is None else self._apply(agreed, before, gradients, watch)
        self._next = self._steps + self._rest
        return order

    def drain(self) -> None:
        """Finish the exchange that is under way."""
        self._gang.read_sum()

    def finish_exchange(self, gradients: Gradients, watch: Stopwatch) -> None:
        """Finish the exchange that is under way and do what was agreed, but for the ranks.

        What it says about these is of an epoch that is decided already.
        """
        agreed, before, self._sizes = self._gang.read_sum(), self._sizes, None
        self._saves.ask_again()
        if agreed is not None:
            self._apply(agreed, before, gradients, watch)

    def add_measurements(self, profiles: Any, total: int) -> None:
        """Take the measurements of another rank, and the samples of its steps."""
        self.tuner.load_state_dict(profiles)
        self.batch = self.tuner.fit_total(total)

    def resize(self, ranks: int) -> None:
        """Go on with other ranks, and the same samples in a step where they allow it."""
        self.tuner.ranks, self.tuner.nodes = ranks, self._gang.nodes
        self.batch = self.tuner.fit_total(self.batch.total)
        self._chosen, self._sizes = None, None
        self._steps, self._rest, self._next = 0, 1, 1
        self._tuned = (0, time.monotonic())

    def _receive(self) -> None:
        for message in self._reports.receive():
            if isinstance(message, Stop):
                self._stop.asked = True
            elif isinstance(message, Adjust):
                size = (message.per_gpu, message.accumulate)
                self._chosen = self.tuner.fit_choice(*size) if message.per_gpu > 0 else None
            elif isinstance(message, Turns):
                self._turns = message
            elif isinstance(message, Shift):
                self._shift = message
            elif isinstance(message, (GroupPlan, Drop)):
                self._live.on_message(message)
        if self._gate.guarded:
            self._live.say_cannot_switch("jobs that take turns are restarted to change their ranks")

    def _has_nothing_to_decide(self, gradients: Gradients) -> bool:
        """Return true if a rank without peers has nothing to decide after this step."""
        if self._stop.asked or gradients.found:
            return False
        now = time.monotonic()
        if now < self._look_at and not self._saves.is_due():
            return True
        self._look_at = now + LOOK_S
        return False

    def _make_wishes(
        self, gradients: Gradients, watch: Stopwatch
    ) -> tuple[list[float], tuple[float, float] | None]:
        wishes, sizes = [0.0] * WIDTH, None
        wishes[STOP] = float(self._stop.asked)
        wishes[READY], wishes[FAILED] = map(float, self._live.flags)
        norms = gradients.take_norms()
        if norms is not None:
            wishes[MEASURED] = 1.0
            wishes[FEW_SQR], wishes[MANY_SQR] = norms.few_sqr, norms.many_sqr
            sizes = (norms.few, norms.many)
        if self._gang.rank == 0:
            wishes[SAVE] = float(self._saves.ask())
            step_s = watch.median("step_s") if self._gang.size > 1 else 0.0
            if step_s:
                wishes[REST] = 1.0 if self._new else min(max(TALK_S // step_s, 1.0), RAREST)
            # An exchange takes one measurement along, so more of them would be for nothing.
            wishes[EVERY] = (
                max(self._choose_interval(gradients, watch), wishes[REST]) if norms else 0.0
            )
            if self._turns is not None:
                wishes[TURN], wishes[GUARDED] = 1.0, float(bool(self._turns.coordinator))
                self._turning, self._turns = self._turns, None
            if self._shift is not None:
                wishes[SHIFTED], wishes[PERIOD_S] = 1.0, self._shift.period_s
                wishes[SHIFT_S], self._shift = self._shift.shift_s, None
            batch = self._propose_batch(watch)
            if batch != self.batch:
                wishes[TOTAL], wishes[PER_GPU] = float(batch.total), float(batch.per_gpu)
                wishes[MICROS] = float(batch.accumulate)
        return wishes, sizes

    def _choose_interval(self, gradients: Gradients, watch: Stopwatch) -> float:
        return 1.0 if self._new else float(gradients.choose_interval(watch.median("step_s")))

    @property
    def _new(self) -> bool:
        """True in the first steps, while too little is known about the gradients."""
        return self._steps < FIRST and self._noise is not None and not self._noise.known

    def _propose_batch(self, watch: Stopwatch) -> StepBatch:
        if self._chosen is not None:
            return self._chosen
        steps, since = self._tuned
        if not self.tuner.bounds.adaptive or self._noise is None:
            return self.batch
        now = time.monotonic()
        if self._steps - steps < TUNE_STEPS or now - since < TUNE_S:
            return self.batch
        if not watch.count("grad_s"):
            return self.batch
        self._tuned = (self._steps, now)
        data_s = watch.median("data_s")
        self.tuner.observe(
            self.batch.per_gpu, watch.median("grad_s") + data_s, watch.median("last_s") + data_s
        )
        return self.tuner.find_best(self._noise, self.batch)

    def _apply(
        self,
        agreed: list[float],
        sizes: tuple[float, float] | None,
        gradients: Gradients,
        watch: Stopwatch,
    ) -> StepCommand:
        ranks = self._gang.size
        if sizes is not None and agreed[MEASURED] == ranks and self._noise is not None:
            few_sqr, many_sqr = agreed[FEW_SQR] / ranks, agreed[MANY_SQR] / ranks
            self._noise.observe(Norms(few_sqr, sizes[0], many_sqr, sizes[1]))
        if agreed[TURN]:
            self._gate.change_turns(self._turning, guarded=agreed[GUARDED] > 0.0)
        if agreed[SHIFTED]:
            self._gate.beat.change(agreed[PERIOD_S], agreed[SHIFT_S])
        if agreed[REST]:
            self._rest = int(agreed[REST])
        if agreed[EVERY]:
            gradients.every = int(agreed[EVERY])
        if agreed[TOTAL]:
            batch = StepBatch(int(agreed[TOTAL]), int(agreed[PER_GPU]), int(agreed[MICROS]))
            if batch != self.batch:
                self.batch = batch
                watch.clear()  # the medians were of another batch
                gradients.every = 1  # measured steps say what the gradient takes of a step
                self._rest = 1  # and steps may be much longer now
                self._tuned = (self._steps, time.monotonic())
        answered = agreed[READY] + agreed[FAILED] == ranks
        return StepCommand(
            stop=agreed[STOP] > 0.0,
            save=agreed[SAVE] > 0.0,
            switch=answered and not agreed[FAILED],
            drop=answered and agreed[FAILED] > 0.0,
        )
