"""The dial of an opportunistic job: up in small steps, down at once (section 4 of the paper).

The paper's local coordinator was not published. This one keeps the guaranteed jobs above within
`HIGH` of the pace they have alone: up by `STEP` while they are within `LOW`, half of the share
when they are beyond `HIGH`, still in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from weft.core.model.job import JobId
from weft.frozen import frozen

# What AntMan remembers between decisions.


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


STEP = 0.05
LOW, HIGH = 1.02, 1.05
LEAST = 0.01  # below this a job is suspended


def next_share(share: float, slowdown: float) -> float:
    """The share of the next epoch, given how much slower the guaranteed jobs got."""
    if slowdown > HIGH:
        return share / 2.0 if share / 2.0 >= LEAST else 0.0
    return min(share + STEP, 1.0) if slowdown <= LOW else share


def turn_dial(dial: Dial, slowdown: float, now: float) -> Dial:
    """The dial of the next epoch.

    It stays below a share that was found too much, as long as the same jobs are above: a loop
    that forgot would disturb them again and again.
    """
    share = next_share(dial.share, slowdown)
    if share > dial.share and share >= dial.most - 1e-9:
        return dial
    if share == dial.share:
        return dial
    most = dial.share if share < dial.share else dial.most
    return replace(dial, share=share, most=most, since=now)


def dial_under(dial: Dial | None, above: tuple[JobId, ...], now: float) -> Dial:
    """The dial of a job under these guaranteed jobs: small where they are new, open with none."""
    if dial is not None and dial.above == above:
        return dial
    share = STEP if above else 1.0
    if dial is not None and above and set(above) <= set(dial.above):
        share = dial.share  # some of those above left: what the others bore they still bear
    return Dial(share, 2.0, now, above)
