"""What ranks agree on at the ends of steps, where what is asked for at one is heard at the next."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weft_train.base.environment import Environment
from weft_train.batch.gradients import Gradients
from weft_train.batch.noise import GradientNoise
from weft_train.batch.tuner import BatchTuner, Bounds
from weft_train.checkpoints.save_times import SaveTimes
from weft_train.control import Control
from weft_train.ranks.gang import RankGang
from weft_train.ranks.live_resize import LiveResize
from weft_train.reports import Reports
from weft_train.stopping import StopRequest
from weft_train.turns.gate import Gate
from weft_train.turns.stopwatch import CpuDeviceClock, Stopwatch

EVERY_S = 100.0


class SilentPeer(RankGang):
    """Rank 0 of two, whose peer wishes for nothing."""

    def __init__(self) -> None:
        super().__init__(Environment(), "cpu")
        self.size = 2
        self._sum: list[float] | None = None

    def begin_sum(self, wishes: Sequence[float]) -> None:
        self._sum = [*wishes]

    def read_sum(self) -> list[float] | None:
        total, self._sum = self._sum, None
        return total

    def broadcast(self, value: object) -> object:
        return value


class Training:
    """Steps of rank 0, a second each."""

    def __init__(self) -> None:
        env, gang, watch = Environment(), SilentPeer(), Stopwatch(CpuDeviceClock())
        reports = Reports(env, 1.0)
        self.now, self._watch = 0.0, watch
        self._gradients = Gradients([torch.nn.Parameter(torch.zeros(1))], 2, CpuDeviceClock())
        self.control = Control(
            gang,
            reports,
            StopRequest(),
            SaveTimes(EVERY_S, EVERY_S, lambda: self.now),
            Gate(env, gang, watch),
            LiveResize(env, gang, reports),
        )
        tuner = BatchTuner(Bounds.of(8, None, None), "cpu", 1, 2)
        self.control.begin_tuning(tuner, GradientNoise(8.0), 8)
        self.control.begin()

    def step(self) -> bool:
        """Whether a checkpoint was agreed on, and taken."""
        self.now += 1.0
        saves = self.control.exchange(self._gradients, self._watch).save
        if saves:
            self.control.note_saved(0.5)
        return saves

    def settle(self) -> None:
        """What ranks do before they change."""
        self.control.finish_exchange(self._gradients, self._watch)


def test_a_checkpoint_that_is_due_is_taken_once() -> None:
    training = Training()

    taken = [training.now for _ in range(350) if training.step()]

    assert taken == [101.0, 202.0, 303.0]


def test_a_checkpoint_that_was_agreed_on_when_the_ranks_changed_is_asked_for_again() -> None:
    training = Training()
    while training.now < EVERY_S:
        assert not training.step()

    training.settle()

    assert [training.step() for _ in range(4)] == [False, True, False, False]
