"""One finding of the judge, with its time, its jobs and its line of the log."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from weft.frozen import frozen


class Weight(IntEnum):
    """Severity of a finding."""

    NOTE = 0  # a number that people may want, nothing is wrong
    DOUBT = 1  # it may have been right for reasons that the log does not have
    WRONG = 2


@frozen
class Finding:
    """Something that the log shows: `line` is its number there, `at` the time of its event.

    `check` is one of `CHECKS`, `what` names the kind of finding in a word or two.
    """

    check: str
    what: str
    at: float
    line: int
    jobs: tuple[str, ...]
    text: str
    weight: Weight = Weight.WRONG


LAWFUL, BOOKS, STOPS = "lawful", "books", "stops"
IDLE, REASONS, PROMISES, FORETOLD = "idle", "reasons", "promises", "foretold"
CHECKS = {
    LAWFUL: "gangs whole, devices and memory within bounds, one attempt at a time, states in order",
    BOOKS: "GPU time, waits and restarts, worked out again from the log",
    STOPS: "no job is stopped for nothing",
    IDLE: "no GPU is idle beside a job that could use it, without a reason",
    REASONS: "reasons that jobs were given are true",
    PROMISES: "deadlines, slowdowns, quotas and reservations are kept",
    FORETOLD: "starts and lengths come as they were predicted",
}


def count_wrong(findings: Iterable[Finding]) -> int:
    """Count the findings that say that something is wrong."""
    return sum(finding.weight is Weight.WRONG for finding in findings)
