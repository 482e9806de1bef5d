"""The connections to an agent's socket: which rank each one is, and its messages."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator
from functools import partial

from weft.node.guard.identity import may_speak
from weft.node.measuring.measurer import Measurer
from weft.node.ranks.conversation import Budget, Line
from weft.wire.attempt import AttemptSpec
from weft.wire.messages import Counted, FromAgent, FromRank, Hello, Notice, Report, Saved

MOST_LINES = 256  # conversations at once: a job may open more than it has ranks
Said = Callable[[Line, FromRank], None]


class Conversations:
    """All lines that are open; `said_by` is called with what a rank of this attempt says.

    What watchers count in its processes goes to `measurer`.
    """

    def __init__(
        self, spec: AttemptSpec, select: selectors.BaseSelector, said_by: Said, measurer: Measurer
    ) -> None:
        self._me, self._user = (spec.job, spec.attempt), spec.user
        self._select, self._on_message, self._measurer = select, said_by, measurer
        self._lines: list[Line] = []
        self._budget, self._counts = Budget(), Budget()

    def listen(self, path: str) -> socket.socket:
        """A socket that ranks can connect to."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(64)
        listener.setblocking(False)
        self._select.register(listener, selectors.EVENT_READ, partial(self._accept, listener))
        return listener

    def __iter__(self) -> Iterator[Line]:
        """Connections of ranks that have identified themselves."""
        return (line for line in [*self._lines] if line.rank is not None)

    def send(self, number: int, message: FromAgent) -> None:
        """To one rank; nothing if it has not come, or has gone."""
        for line in self:
            if line.rank == number:
                line.send(message)

    def hear_last(self, number: int) -> None:
        """What a rank that has ended still said."""
        for line in self:
            if line.rank == number:
                self._hear(line)

    def _accept(self, listener: socket.socket) -> None:
        conversation, _ = listener.accept()
        if len(self._lines) >= MOST_LINES or not may_speak(conversation, self._user):
            conversation.close()
            return
        line = Line(conversation)
        self._lines.append(line)
        self._select.register(conversation, selectors.EVENT_READ, partial(self._hear, line))

    def _hear(self, line: Line) -> None:
        for message in line.receive():
            match message:
                case Counted(job, attempt):
                    if (job, attempt) == self._me and self._counts.allows():
                        self._measurer.take(message)
                case Hello(job, attempt, rank) if (job, attempt) == self._me:
                    line.rank = rank
                    self._measurer.reports_itself = True
                    self._on_message(line, message)
                case _ if line.rank is None:
                    continue  # it has not said who it is, or it is of another attempt
                case Report() | Saved() | Notice() if not self._budget.allows():
                    continue  # it says more than anyone could read
                case _:
                    self._on_message(line, message)
        if line.closed and line in self._lines:
            self._lines.remove(line)
            self._select.unregister(line.socket)
            line.socket.close()
