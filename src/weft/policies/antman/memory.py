"""What AntMan remembers between decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.core.model.job import JobId, NodeId, Slice
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
class Counted:
    """A job that runs, with the load that is booked for it on each device of its slices."""

    slices: tuple[Slice, ...]
    load: float


@frozen
class AntmanMemory:
    """Devices kept for gangs that are not whole yet, and the dials of opportunistic jobs.

    `loads` of the devices of each node, and for which jobs, are booked by the artifact alone.
    """

    kept: Mapping[JobId, tuple[Slice, ...]] = field(default_factory=dict)
    loads: Mapping[NodeId, tuple[float, ...]] = field(default_factory=dict)
    counted: Mapping[JobId, Counted] = field(default_factory=dict)
    dials: Mapping[JobId, Dial] = field(default_factory=dict)
