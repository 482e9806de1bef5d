"""A job as lists, those who watch, and notifications all tell about it."""

from __future__ import annotations

from weft.core.model.priorities import PriorityWord
from weft.frozen import frozen_by_name
from weft.service.responses.state_words import StateWord


@frozen_by_name
class JobName:
    """Which job it is, and whose."""

    id: str
    name: str
    tenant: str


@frozen_by_name
class GpuRange:
    """What a job asks for."""

    asked: int
    min: int
    max: int


@frozen_by_name
class JobRow(JobName):
    """What every description of a job has; times in seconds since the epoch."""

    user: str
    state: StateWord
    priority: PriorityWord
    gpus: GpuRange
    kinds: list[str]
    submitted: float
    started: float | None
    ended: float | None
    restarts: int
    attempt: int
    progress: float | None
    batch: float | None
    goodput: float | None
    speed: float | None
    gpu_seconds: float
    app: str = ""
