"""One agent of several while the ranks of its attempt change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from weft.node.gang_resizer import GangResizer, make_resizer
from weft.node.resizer import Resizer
from weft.wire.attempt import CHANGE, AttemptSpec, write_whole
from weft.wire.messages import Adopted, Built, CanResize, Drop, Dropped, Form, FromAgent, Leaving

SPEC = AttemptSpec("j", 1, ("true",), "/", "/c", (0, 1), part=True, world_size=3, most_ranks=4)
FORM = Form(1, (0, 2, 3), (3,), (0, 2), "tcp://x:1", 0, 2)


class Hands:
    """What the agent was asked to do."""

    def __init__(self) -> None:
        self.told: list[tuple[int, FromAgent]] = []
        self.settled: list[tuple[tuple[int, ...], Mapping[int, int]]] = []

    def start_new(self, number: int, spec: AttemptSpec, local: int, env: Mapping[str, str]) -> None:
        raise AssertionError("new ranks have agents of their own")

    def tell(self, number: int, message: FromAgent) -> None:
        self.told.append((number, message))

    def settle_in(self, spec: AttemptSpec, places: Mapping[int, int]) -> None:
        self.settled.append((spec.devices, places))


class Lines:
    """What was written down."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def write(self, event: str, **values: Any) -> None:
        self.written.append({"event": event, **values})


class Agent:
    def __init__(self, folder: Path, spec: AttemptSpec, *numbers: int) -> None:
        self.hands, self.folder, self.lines = Hands(), folder, Lines()
        ranks: Any = dict.fromkeys(numbers)
        journal: Any = self.lines
        self.resizer = GangResizer(folder, spec, journal, ranks, self.hands)
        self.resizer.begin([*numbers])

    def ask(self, **request: object) -> None:
        write_whole(self.folder / CHANGE, {"epoch": 1, **request})
        self.resizer.take_up()


def test_an_agent_alone_changes_its_ranks_itself(tmp_path: Path) -> None:
    journal: Any = Lines()

    alone = make_resizer(tmp_path, replace(SPEC, part=False), journal, {}, Hands())
    assert isinstance(alone, Resizer)
    assert isinstance(make_resizer(tmp_path, SPEC, journal, {}, Hands()), GangResizer)


def test_a_part_tells_its_ranks_what_it_is_told_once(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    agent.ask(form=asdict(FORM))
    agent.resizer.take_up()

    assert agent.hands.told == [(0, FORM), (1, FORM)]
    agent.ask(drop="nobody wants it")
    assert agent.hands.told[2:] == [(n, Drop(1, "nobody wants it")) for n in (0, 1)]
    assert agent.lines.written == []  # the ranks answer


def test_a_part_answers_for_ranks_that_never_heard_of_what_is_given_up(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    agent.ask(drop="its node is gone")  # written over `form` before the agent had read that

    dropped = {"event": "dropped", "epoch": 1, "number": 0, "reason": "its node is gone"}
    assert agent.lines.written == [dropped]


def test_a_rank_that_leaves_by_agreement_is_no_end_of_the_attempt(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    agent.ask(form=asdict(FORM))

    assert agent.resizer.is_member(1)
    agent.resizer.hear(1, Leaving("resized"))

    assert agent.resizer.exited(1, 0)
    assert not agent.resizer.exited(0, 1)
    assert agent.hands.settled == [((0,), {0: 0})]
    assert agent.resizer.released is None


def test_a_part_that_all_its_ranks_have_left_was_released(tmp_path: Path) -> None:
    agent = Agent(tmp_path, replace(SPEC, devices=(0,), first_rank=1), 1)
    agent.ask(form=asdict(FORM))
    agent.resizer.hear(1, Leaving("resized"))

    assert agent.resizer.released == ("released", "")


def test_ranks_are_counted_anew_when_they_have_changed(tmp_path: Path) -> None:
    agent = Agent(tmp_path, replace(SPEC, devices=(0,), first_rank=2), 2)
    assert agent.resizer.rank_of(2) == 2
    agent.ask(form=asdict(FORM))
    agent.resizer.hear(2, Adopted(1, 10, 0.1))

    assert agent.resizer.rank_of(2) == 1


@pytest.mark.parametrize("adopted", [True, False])
def test_a_rank_that_joins_is_one_of_the_attempts_once_it_has_adopted(
    tmp_path: Path, adopted: bool
) -> None:
    spec = replace(SPEC, devices=(5,), first_rank=3, join=1, members=(0, 2, 3))
    agent = Agent(tmp_path, spec, 3)
    assert agent.resizer.join_variables(3) == {"RANK": "2", "WEFT_MEMBER": "3", "WEFT_JOIN": "1"}
    agent.resizer.hear(3, Built(1))
    agent.ask(form=asdict(FORM))
    if adopted:
        agent.resizer.hear(3, Adopted(1, 10, 0.1))

    assert agent.resizer.is_member(3) == adopted
    assert agent.resizer.exited(3, 9) != adopted
    assert (agent.resizer.released is None) == adopted


def test_what_ranks_say_of_a_change_is_written_down(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    for message in (CanResize(0.5, True), Built(1), Dropped(1, "no room")):
        agent.resizer.hear(0, message)
    agent.ask(meet=True)

    can, built, dropped, meeting = agent.lines.written
    assert can == {"event": "resizable", "state_gb": 0.5, "several": True}
    assert built == {"event": "built", "epoch": 1, "number": 0}
    assert dropped == {"event": "dropped", "epoch": 1, "number": 0, "reason": "no room"}
    assert (meeting["event"], meeting["epoch"]) == ("meeting", 1)
    assert meeting["port"] > 0
