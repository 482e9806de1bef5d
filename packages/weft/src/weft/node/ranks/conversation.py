"""The agent's conversations with ranks, and what the ranks' ends amount to."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from weft.base.errors import WireError
from weft.base.messages import (
    FROM_AGENT,
    Adjust,
    Counted,
    FromAgent,
    FromRank,
    Hello,
    Metrics,
    Notice,
    Report,
    Saved,
    Shift,
    Stop,
    Turns,
    from_rank,
)
from weft.node.guard.identity import admit
from weft.node.measuring.measurer import Measurer
from weft.node.measuring.metric_lines import MetricLines
from weft.node.ranks.rank import Rank
from weft.wire.attempt import AttemptSpec


class MessageBucket:
    """Allow some messages at once, and some per second in the long run; drop the others."""

    def __init__(self, most: float = 500.0, per_s: float = 50.0) -> None:
        self._most, self._per_s = most, per_s
        self._left, self._since = most, time.monotonic()
        self.dropped = 0

    def allows(self) -> bool:
        """True if one more may be written down."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._since) * self._per_s)
        self._since = now
        if self._left < 1.0:
            self.dropped += 1
            return False
        self._left -= 1.0
        return True


class RankConnection:
    """A connection from a process that claims to be a rank; `rank` is known after its hello."""

    def __init__(self, conversation: socket.socket) -> None:
        conversation.setblocking(False)
        self.socket = conversation
        self.rank: int | None = None
        self.closed = False
        self._words = from_rank()

    def receive(self) -> list[FromRank]:
        """Messages that have come by now; a line that makes no sense ends the conversation."""
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


def tell_terms(line: RankConnection, spec: AttemptSpec, adjusted: Mapping[str, Any]) -> None:
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


def attempt_outcome(
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


def ask_to_exit(
    lines: Sequence[RankConnection], ranks: Mapping[int, Rank], spec: AttemptSpec, grace_s: float
) -> None:
    """Ask every rank to be gone within `grace_s`: those that listen, else by the usual signal."""
    for line in lines:
        line.send(Stop(grace_s))
    if lines:
        return
    for rank in ranks.values():
        rank.signal(signal.SIGTERM)
        if spec.run.pty:
            rank.signal(signal.SIGHUP)  # a shell with a terminal leaves for nothing less


MOST_WAITING = 64  # connections that were made and not accepted yet
MOST_LINES = 256  # conversations at once: a job may open more than it has ranks
Said = Callable[[RankConnection, FromRank], None]


class RankListener:
    """All lines that are open; `said_by` is called with what a rank of this attempt says.

    What watchers count in its processes goes to `measurer`, what programs measured to `metrics`.
    """

    def __init__(
        self,
        spec: AttemptSpec,
        select: selectors.BaseSelector,
        said_by: Said,
        measurer: Measurer,
        metrics: MetricLines,
    ) -> None:
        self._me, self._user = (spec.job, spec.attempt), spec.user
        self._select, self._on_message, self._measurer = select, said_by, measurer
        self._lines: list[RankConnection] = []
        self._accept_waiting: Callable[[], None] = lambda: None
        self._metrics = metrics
        self._budget, self._counts, self._values = (MessageBucket() for _ in range(3))

    def listen(self, path: str) -> socket.socket:
        """Open a socket that ranks can connect to."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(MOST_WAITING)
        listener.setblocking(False)
        self._accept_waiting = partial(self._accept_all, listener)
        self._select.register(listener, selectors.EVENT_READ, self._accept_waiting)
        return listener

    def __iter__(self) -> Iterator[RankConnection]:
        """Connections of ranks that have identified themselves."""
        return (line for line in [*self._lines] if line.rank is not None)

    def send(self, number: int, message: FromAgent) -> None:
        """To one rank; nothing if it has not come, or has gone."""
        for line in self:
            if line.rank == number:
                line.send(message)

    def hear_last(self, number: int) -> None:
        """Read the last messages of a rank that has ended, and all that watchers have said."""
        self._accept_waiting()
        for line in [*self._lines]:
            if line.rank in (number, None):
                self._read_messages(line)

    def _accept_all(self, listener: socket.socket) -> None:
        """Accept those that wait now: a program that connects without end holds nothing up."""
        for _ in range(MOST_WAITING):
            if not self._accept(listener):
                break

    def _accept(self, listener: socket.socket) -> bool:
        """Let the next caller in; false if there is none for now."""
        conversation = admit(listener, self._user)
        if conversation is None:
            return False
        if len(self._lines) >= MOST_LINES:
            conversation.close()
            return True
        line = RankConnection(conversation)
        self._lines.append(line)
        self._select.register(
            conversation, selectors.EVENT_READ, partial(self._read_messages, line)
        )
        return True

    def _read_messages(self, line: RankConnection) -> None:
        for message in line.receive():
            match message:
                case Counted(job, attempt):
                    if (job, attempt) == self._me and self._counts.allows():
                        self._measurer.take(message)
                case Metrics(job, attempt, rank) if line.rank is None:
                    if (job, attempt) == self._me and self._values.allows():
                        self._metrics.take(rank, message)
                case Hello(job, attempt, rank) if (job, attempt) == self._me:
                    line.rank = rank
                    self._measurer.reports_itself = True
                    self._on_message(line, message)
                case _ if line.rank is None:
                    continue  # it has not said who it is, or it is of another attempt
                case Report() | Metrics() | Saved() | Notice() if not self._budget.allows():
                    continue  # it says more than anyone could read
                case _:
                    self._on_message(line, message)
        if line.closed and line in self._lines:
            self._lines.remove(line)
            self._select.unregister(line.socket)
            line.socket.close()
