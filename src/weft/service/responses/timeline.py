"""What the API tells about the past: which jobs held which devices when, and what was decided."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from weft.frozen import frozen_by_name
from weft.service.responses.watch import Place

EndWord = Literal["", "finished", "preempted", "failed", "cancelled", "suspended", "resized"]


@frozen_by_name
class HeldSpan:
    """A job on devices from `start` to `end`, null while it is there.

    Jobs of other tenants have no name. `lost_gpu_s` is the work since the last checkpoint of a job
    that was stopped or failed, null if it never wrote one.
    """

    job: str
    name: str
    tenant: str
    attempt: int
    on: list[Place]
    share: float
    start: float
    end: float | None
    how: EndWord
    lost_gpu_s: float | None = None


@frozen_by_name
class TimelineAnswer:
    """Spans that overlap a window; if there are very many, `left_out` short ones are omitted.

    `begun` is the time of the first event. `part_read` is the fraction of the log read so far, 1
    for all. `seq` is the value for the next `after`.
    """

    now: float
    begun: float | None
    part_read: float
    seq: int
    spans: list[HeldSpan]
    left_out: int


@frozen_by_name
class MoveAnswer:
    """A job whose devices a decision changed; for jobs of other tenants only the numbers."""

    job: str
    name: str
    before_gpus: float
    after_gpus: float
    adjusted: bool
    why: str


@frozen_by_name
class DecisionAnswer:
    """One decision; `took_s` and `numbers` (a gap, prices by kind) if they are still known."""

    number: int
    at: float
    moves: list[MoveAnswer]
    more_moves: int
    rejected: int
    reasons: int
    by: str
    took_s: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)


@frozen_by_name
class DecisionList:
    """The last decisions that changed something, newest first."""

    decisions: list[DecisionAnswer]
    part_read: float
