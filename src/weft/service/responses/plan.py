"""What the API answers to a job that is planned and not queued."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.service.responses.answers import Ahead, Part, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A running job that would go elsewhere, and what that costs and gains."""

    id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What would happen to a job now."""

    starts_now: bool
    allocation: list[Part] | None
    displaces: list[Ahead]
    reason: str
    start: Start | None
    moves: list[Moved] = field(default_factory=list)
