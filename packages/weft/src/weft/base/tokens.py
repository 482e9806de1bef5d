"""The conversation of a rank with its node's coordinator of stage tokens.

    rank → coordinator    join, ask, free, inspect
    coordinator → rank    granted, recall, expired, alive, inspected

Tokens are `io`, `cpu`, `net` and `gpu:<device>`. A rank joins, then for every stage asks for the
stage's tokens, waits for `granted`, works, and frees them. A connection that ends gives back
whatever its rank held. A rank that hears nothing at all for `SILENCE_S` seconds while it waits
takes the coordinator for dead and runs freely until it can connect again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .lines import Splitter, Vocabulary

ALIVE_S = 3.0  # how often waiting ranks get a sign of life of the coordinator
SILENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Join:
    """Rank to coordinator, first. Rank 0 speaks for all ranks of its job on the node.

    `tier` is guaranteed or opportunistic; `weight` is its share among equals; `phase` in [0, 1)
    is its place in a common period, where the discipline has one. `gpus` are the tokens of the
    devices it lives on; without any it may live on all of them.
    """

    job: str
    rank: int
    pid: int
    tier: str = "guaranteed"
    weight: float = 1.0
    phase: float = 0.0
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Rank to coordinator: wait for `tokens`, all at once or none. `stage` numbers the asks.

    A gang's rank 0 asks for the GPUs of all its ranks together: no gang ever holds one GPU while
    waiting for another, so gangs cannot deadlock.
    """

    stage: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """Rank to coordinator: the stage is over.

    `used_s` is the time it worked, `iterations` how many times it used the lease.
    """

    stage: int
    used_s: float
    iterations: int = 1


@dataclass(frozen=True, slots=True)
class Inspect:
    """Anyone to coordinator: answer with one `inspected` for each member and one without a job."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Coordinator to rank: the tokens are yours.

    The same tokens may be used for `iterations` stages in a row without asking again; 0 is as
    many as you like until a `recall`. After `for_s` seconds they must be freed at the next end of
    a stage; a holder that is long overdue loses them (`expired`).
    """

    stage: int
    iterations: int
    for_s: float


@dataclass(frozen=True, slots=True)
class Recall:
    """Coordinator to rank: free the lease at the next end of a stage, others wait."""

    stage: int


@dataclass(frozen=True, slots=True)
class Expired:
    """Coordinator to rank: the lease was held too long and is another member's now."""

    stage: int


@dataclass(frozen=True, slots=True)
class Alive:
    """Coordinator to a waiting rank: still here, it is not your turn."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """Coordinator to a client that asked with `inspect`: a member's counts.

    waited_s, grants and expired are of the member; `used_s.TOKEN` and `held_s.TOKEN` are the
    seconds it worked with and held a token. The last one has an empty job and, in `values`,
    `members` and `up_s`.
    """

    job: str
    rank: int
    values: Mapping[str, float]


FromMember = Join | Ask | Free | Inspect
FromCoordinator = Granted | Recall | Expired | Alive | Inspected

FROM_MEMBER: Vocabulary[FromMember] = Vocabulary(Join, Ask, Free, Inspect)
FROM_COORDINATOR: Vocabulary[FromCoordinator] = Vocabulary(
    Granted, Recall, Expired, Alive, Inspected
)


def from_member() -> Splitter[FromMember]:
    """Return the coordinator's reader of a rank's stream."""
    return Splitter(FROM_MEMBER)


def from_coordinator() -> Splitter[FromCoordinator]:
    """Return a rank's reader of the coordinator's stream."""
    return Splitter(FROM_COORDINATOR)
