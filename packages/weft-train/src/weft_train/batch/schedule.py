"""A learning-rate schedule that counts in samples, so that the batch may change under it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from weft_train.data.loader import Loader
from weft_train.data.sampling import count_steps
from weft_train.errors import TrainError

HINT = "the job steps it after each optimizer step; remove the calls"


def advance_all(
    schedules: Iterable[SampleSchedule], epoch: int, position: int, loader: Loader | None
) -> None:
    """Bring schedules to where the training stands."""
    if loader is not None:
        done = count_steps(position, loader.length, loader.first_batch)
        for schedule in schedules:
            schedule.advance(epoch * len(loader) + done)


class SampleSchedule:
    """A schedule that the job steps, once for each first-size batch of samples trained on.

    A step of twice the first batch size advances it by two. So the rate is the same function of
    the samples seen whatever the batch sizes and however often the job was stopped.
    """

    def __init__(self, inner: LRScheduler) -> None:
        self.inner = inner
        self._stood_at = inner.last_epoch
        self._steps = 0

    def get_last_lr(self) -> list[float]:
        """The present learning rates, by parameter group, before scaling for the batch."""
        return [float(rate) for rate in self.inner.get_last_lr()]

    def step(self, *_: Any) -> None:
        """Refused: the job does it."""
        raise TrainError("schedule.step() was called by the script", hint=HINT)

    def advance(self, steps: int) -> None:
        """Go to where a training of that many first-size steps stands."""
        if self.inner.last_epoch != self._stood_at:
            raise TrainError("a schedule given to job.schedule was stepped elsewhere", hint=HINT)
        while self._steps < steps:
            self.inner.step()
            self._steps += 1
        self._stood_at = self.inner.last_epoch

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        self._steps, self._stood_at = int(state["steps"]), self.inner.last_epoch
