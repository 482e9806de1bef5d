"""An agent's turn: what is over is not listened to any more."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from weft.node.agent import Agent
from weft.wire.attempt import AttemptSpec


def test_what_was_closed_earlier_in_the_same_turn_is_not_read(tmp_path: Path) -> None:
    """A rank's end and its last words may come together, in either order."""
    agent = Agent(tmp_path, AttemptSpec("job", 1, ("true",), "/", "/", ()), None)
    pipes = [os.pipe() for _ in range(2)]
    served: list[int] = []

    def close_the_other(me: int, other: int) -> None:
        served.append(me)
        agent._select.unregister(other)
        os.close(other)

    (first, _), (two, _) = pipes
    agent._watch(first, partial(close_the_other, first, two))
    agent._watch(two, partial(close_the_other, two, first))
    for _, end in pipes:
        os.write(end, b"x")

    agent._turn()

    assert len(served) == 1
    for handle in (served[0], *(end for _, end in pipes)):
        os.close(handle)
    agent._select.close()
    agent.journal._bell.close()
    os.close(agent.journal._out)
