"""What the API answers to a job that is planned and not queued."""

from __future__ import annotations

from dataclasses import field

from weft.frozen import frozen_by_name
from weft.service.responses.answers import Ahead, Part, Start


@frozen_by_name
class Moved:
    """A running job that would move, and what that costs and gains."""

    id: str
    name: str
    text: str


@frozen_by_name
class Planned:
    """What would happen to a job now."""

    starts_now: bool
    allocation: list[Part] | None
    displaces: list[Ahead]
    reason: str
    start: Start | None
    moves: list[Moved] = field(default_factory=list)
