"""Traffic between the workers of a job while they train."""

from __future__ import annotations

from enum import StrEnum
from math import isclose

from weft.core.errors import InvalidConfig
from weft.frozen import frozen


class Pattern(StrEnum):
    """The pairs of workers of a job that communicate."""

    RING = "ring"  # all-reduce: each to the next
    TREE = "tree"  # reduce and broadcast: each to its parent, (i - 1) // 2
    CHAIN = "chain"  # a pipeline: each to the next, the last to none
    STAR = "star"  # a parameter server: the first to all others
    ALL_TO_ALL = "all-to-all"  # embeddings, experts: each to all others


class Architecture(StrEnum):
    """The way a job is built, as IISWC'19 counts the jobs of PAI."""

    ONE = "1w1g"  # one worker on one GPU: no communication
    LOCAL = "1wng"  # one worker on several GPUs of a node
    SERVERS = "ps"  # workers and parameter servers over the network
    ALL_REDUCE = "all-reduce"  # workers that reduce among themselves


@frozen
class TrafficPhase:
    """A stretch of an iteration in which a job sends: when, how long, and at which rate alone."""

    start_s: float
    seconds: float
    gbps: float


@frozen
class Traffic:
    """One iteration of a job, as far as links are concerned.

    `iteration_s` is how long it takes on the allocation that the job's length counts, `share` the
    part of it in which workers wait for communication. `gbit` is what every link that the job
    crosses carries for it in an iteration, each way. `phases` say when; without any it talks at the
    end. `sensitive` false: it hides its communication behind computation, and slow links do not
    slow it. Raises InvalidConfig naming the field that is wrong.
    """

    iteration_s: float = 1.0
    share: float = 0.0
    gbit: float = 0.0
    pattern: Pattern = Pattern.RING
    phases: tuple[TrafficPhase, ...] = ()
    sensitive: bool = True
    architecture: Architecture = Architecture.ALL_REDUCE

    def __post_init__(self) -> None:
        _check("iteration_s", self.iteration_s, 0.0 < self.iteration_s < 1e9, "above 0 s")
        _check("share", self.share, 0.0 <= self.share <= 1.0, "from 0 to 1")
        _check("gbit", self.gbit, 0.0 <= self.gbit < 1e9, "0 or more Gbit")
        _check("gbit", self.gbit, self.gbit > 0.0 or not self.share, "above 0 where share is")
        for phase in self.phases:
            end = phase.start_s + phase.seconds
            fits = end <= self.iteration_s or isclose(end, self.iteration_s)
            inside = phase.start_s >= 0.0 < phase.seconds and fits
            _check("phases", phase, inside, f"inside the iteration of {self.iteration_s:g} s")
            _check("phases", phase, 0.0 <= phase.gbps < 1e9, "0 or more Gbit/s")

    @property
    def compute_s(self) -> float:
        """Seconds of an iteration in which no rank waits for a link."""
        return self.iteration_s * (1.0 - self.share)

    @property
    def talking(self) -> tuple[TrafficPhase, ...]:
        """The phases in which it sends: the declared ones, or one at the end of the iteration."""
        if self.phases or not self.share or not self.gbit:
            return self.phases
        seconds = self.share * self.iteration_s
        return (TrafficPhase(self.compute_s, seconds, self.gbit / seconds),)

    def seconds_at(self, gb_s: float) -> float:
        """Seconds for an iteration where the workers have that many GB/s between them."""
        if not self.sensitive or not self.share:
            return self.iteration_s
        return self.compute_s + self.gbit / (8.0 * gb_s)


def _check(field: str, value: object, right: bool, expected: str) -> None:
    if not right:
        raise InvalidConfig(f"traffic: {field}={value!r} cannot be", hint=f"{field}: {expected}")
