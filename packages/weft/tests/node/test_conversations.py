"""Who talks with an agent, and when it lets them in."""

from __future__ import annotations

import selectors
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from weft.base.messages import FROM_RANK, FromRank, Hello
from weft.node.ranks.conversation import RankConnection, RankListener
from weft.wire.attempt import AttemptSpec

SPEC = AttemptSpec("j", 1, ("true",), "/", "", (0, 1))


def test_who_calls_as_a_rank_ends_is_let_in_once(tmp_path: Path) -> None:
    """A rank's end and a call are one batch of what is ready: the end lets the caller in first."""
    heard: list[FromRank] = []
    measurer: Any = type("Measurer", (), {"reports_itself": False})()
    metrics: Any = None

    def hear(_: RankConnection, message: FromRank) -> None:
        heard.append(message)

    with selectors.DefaultSelector() as select, socket.socket(socket.AF_UNIX) as caller:
        lines = RankListener(SPEC, select, hear, measurer, metrics)
        with lines.listen(path := str(tmp_path / "agent.sock")):
            caller.connect(path)
            caller.sendall(FROM_RANK.encode(Hello("j", 1, 1, 7)))
            ready = select.select(0.0)

            lines.hear_last(0)
            for key, _ in ready:
                key.data()

            assert len(ready) == 1
            assert heard == [Hello("j", 1, 1, 7)]
            assert [line.rank for line in lines] == [1]
            for line in lines:
                line.socket.close()


def test_all_who_wait_are_let_in_at_once(tmp_path: Path) -> None:
    """On a busy machine an agent seldom has its turn, and processes that count call often."""
    nothing: Any = None
    with ExitStack() as stack:
        select = stack.enter_context(selectors.DefaultSelector())
        lines = RankListener(SPEC, select, lambda *_: None, nothing, nothing)
        stack.enter_context(lines.listen(path := str(tmp_path / "agent.sock")))
        for _ in range(20):
            caller = stack.enter_context(socket.socket(socket.AF_UNIX))
            caller.connect(path)

        for key, _ in select.select(0.0):
            key.data()

        let_in = [key for key in select.get_map().values() if key.fileobj is not None]
        assert len(let_in) == 1 + 20
        for key in [*let_in]:
            select.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
