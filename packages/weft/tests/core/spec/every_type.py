"""A part with a parameter of each type that specs can write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class EveryType:
    flag: bool = False
    count: int = 1
    weight: float = 0.5
    limit: float | None = None
    most: int | None = None
    steps: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    mode: Literal["fast", "slow"] = "fast"
    text: str = ""
