"""What is known of how jobs train by workers and servers, and of how their loss falls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from weft.core.model import Job
from weft.core.table import Floats

Law = Callable[[Any], Any]


class Ratios(NamedTuple):
    """Seconds of a whole training on w workers and p servers, as a sum of ratios."""

    fixed: float = 0.0
    over_w: float = 0.0
    w_over_p: float = 0.0
    over_p: float = 0.0

    def at(self, w: Any, p: Any) -> Any:
        """In seconds."""
        return self.fixed + self.over_w / w + self.w_over_p * w / p + self.over_p / p


@dataclass(frozen=True, slots=True)
class Learned:
    """How far a job has come.

    `iteration` and `loss` are its last; `largest` is the largest change of loss in one iteration,
    `recent` the last one. `gpu_s` is one iteration's time times the GPUs it ran on, 0 where
    unknown. `law` foretells the loss at iterations; None before there is anything to fit.
    """

    iteration: float
    loss: float
    largest: float
    recent: float
    gpu_s: float
    law: Law | None = None


class Training(Protocol):
    """What the scheduler believes of trainings, from what jobs say and report of themselves."""

    def observe(self, job: Job, kind: str, values: Mapping[str, float]) -> None:
        """A running job reported."""
        ...

    def forget(self, job: Job) -> None:
        """A job has left."""
        ...

    def ratios(self, job: Job) -> Ratios | None:
        """Completion time by workers and servers; None of a job without servers."""
        ...

    def step_seconds(self, job: Job, workers: int, servers: int) -> Floats | None:
        """Servers x workers, from 0 on: seconds of an update; None of a job without servers."""
        ...

    def steps_left(self, job: Job) -> float | None:
        """Updates until the loss hardly falls any more; None where nothing tells."""
        ...

    def seconds_left(self, job: Job) -> float | None:
        """Seconds until the loss hardly falls any more, on what the job asked for; None if unknown.

        Of jobs that reduce among themselves; those with servers are asked for `steps_left`.
        """
        ...

    def learned(self, job: Job) -> Learned | None:
        """How far a job has come; None before its first report of a loss."""
        ...
