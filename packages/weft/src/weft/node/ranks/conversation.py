"""The agent's conversation with one rank, and what the ranks' ends amount to."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from weft.node.ranks.rank import Rank
from weft.wire.attempt import AttemptSpec
from weft.wire.errors import WireError
from weft.wire.messages import (
    FROM_AGENT,
    Adjust,
    FromAgent,
    FromRank,
    Shift,
    Stop,
    Turns,
    from_rank,
)


class Budget:
    """Allow some messages at once, and some per second in the long run; drop the others."""

    def __init__(self, most: float = 500.0, per_s: float = 50.0) -> None:
        self._most, self._per_s = most, per_s
        self._left, self._since = most, time.monotonic()
        self.dropped = 0

    def allows(self) -> bool:
        """Whether one more may be written down."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._since) * self._per_s)
        self._since = now
        if self._left < 1.0:
            self.dropped += 1
            return False
        self._left -= 1.0
        return True


class Line:
    """A connection from a process that claims to be a rank; `rank` is known after its hello."""

    def __init__(self, conversation: socket.socket) -> None:
        conversation.setblocking(False)
        self.socket = conversation
        self.rank: int | None = None
        self.closed = False
        self._words = from_rank()

    def receive(self) -> list[FromRank]:
        """What has come by now; a line that makes no sense ends the conversation."""
        heard: list[FromRank] = []
        while not self.closed:
            try:
                chunk = self.socket.recv(65_536)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = True
                break
            try:
                heard.extend(self._words.feed(chunk))
            except WireError:
                self.closed = True
        return heard

    def send(self, message: FromAgent) -> None:
        """Say something; messages are small, so a full buffer means that the reader is gone."""
        try:
            self.socket.sendall(FROM_AGENT.encode(message))
        except OSError:
            self.closed = True


def tell_terms(line: Line, spec: AttemptSpec, adjusted: Mapping[str, Any]) -> None:
    """To rank 0: batch, turns and time shift that were asked for last; it knows its first turns.

    All may be repeated: a rank skips what it does already.
    """
    batch = adjusted["batch"] if adjusted else spec.batch
    if batch is not None:
        line.send(Adjust(*batch))
    if adjusted and "turns" in adjusted:
        line.send(Turns(**adjusted["turns"]))
    shift = adjusted.get("time_shift") if adjusted else spec.time_shift
    if shift is not None:
        line.send(Shift(*shift))


def verdict(
    codes: Mapping[int, int], left: Mapping[int, str], asked: bool, why: str, first: int = 0
) -> tuple[str, str]:
    """Outcome and reason of an attempt from exit codes and last words of its ranks.

    One that was asked to leave has stopped whatever its codes, unless its trainer said that
    the training is done. `why` is a reason known otherwise, `first` the number of rank 0.
    """
    done = left.get(first) == "done"
    bad = {rank: code for rank, code in sorted(codes.items()) if code != 0}
    if done and not bad:
        return "finished", ""
    if asked:
        return "stopped", _quote(bad) if bad else ""
    if why:
        return "failed", why
    if bad:
        return "failed", _quote(bad)
    if {"stopped", "resized", "error"} & {*left.values()}:
        return "failed", "it left before it was done"
    return "finished", ""


def first_code(codes: Mapping[int, int]) -> int | None:
    """The exit code that an attempt failed with; None if none of its processes did."""
    bad = {rank: code for rank, code in codes.items() if code != 0}
    return bad[_cause(bad)] if bad else None


def _cause(bad: Mapping[int, int]) -> int:
    # A peer that was ended because of another says nothing; name a real cause first.
    return min(bad, key=lambda rank: (bad[rank] == -signal.SIGTERM, rank))


def _quote(bad: Mapping[int, int]) -> str:
    # A peer that was ended because of another says nothing; name a real cause first.
    rank, code = min(bad.items(), key=lambda pair: (pair[1] == -signal.SIGTERM, pair[0]))
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"rank {rank} ended with {how}"


def tell_to_leave(
    lines: Sequence[Line], ranks: Mapping[int, Rank], spec: AttemptSpec, grace_s: float
) -> None:
    """Ask every rank to be gone within `grace_s`: those that listen, else by the usual signal."""
    for line in lines:
        line.send(Stop(grace_s))
    if lines:
        return
    for rank in ranks.values():
        rank.signal(signal.SIGTERM)
        if spec.pty:
            rank.signal(signal.SIGHUP)  # a shell with a terminal leaves for nothing less
