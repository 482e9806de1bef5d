"""Who talks with an agent, and when it lets them in."""

from __future__ import annotations

import selectors
import socket
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
