"""What AntMan remembers between decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.core.model.job import JobId
from weft.frozen import frozen


@frozen
class Dial:
    """How the share of one opportunistic job is being set.

    `above` are the guaranteed jobs it lives under; `most` the share that was found too much for
    them, 1 or more while none was; `since` when the share was last changed.
    """

    share: float = 1.0
    most: float = 2.0
    since: float = 0.0
    above: tuple[JobId, ...] = ()


@frozen
class AntmanMemory:
    """The dials of opportunistic jobs."""

    dials: Mapping[JobId, Dial] = field(default_factory=dict)
