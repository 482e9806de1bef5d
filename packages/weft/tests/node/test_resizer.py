"""An agent's part in changes of the ranks: as one of several, and where it starts new ones."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from weft.base.messages import (
    Adopted,
    Built,
    CanResize,
    Drop,
    Dropped,
    FromAgent,
    FromRank,
    GroupPlan,
    Leaving,
)
from weft.node import resizer
from weft.node.ranks.rank import Rank
from weft.node.resizer import Resizer
from weft.wire.attempt import CHANGE, AttemptSpec, write_whole

SPEC = AttemptSpec("j", 1, ("true",), "/", "/c", (0, 1), part=True, world_size=3, most_ranks=4)
FORM = GroupPlan(1, (0, 2, 3), (3,), (0, 2), "tcp://x:1", 0, 2)


class Hands:
    """What the agent was asked to do."""

    def __init__(self) -> None:
        self.told: list[tuple[int, FromAgent]] = []
        self.settled: list[tuple[tuple[int, ...], Mapping[int, int]]] = []

    def start_new(self, number: int, spec: AttemptSpec, local: int, env: Mapping[str, str]) -> None:
        raise AssertionError("new ranks have agents of their own")

    def send_to_rank(self, number: int, message: FromAgent) -> None:
        self.told.append((number, message))

    def apply_spec(self, spec: AttemptSpec, places: Mapping[int, int]) -> None:
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
        self.resizer = Resizer(folder, spec, journal, ranks, self.hands)
        self.resizer.set_first_ranks([*numbers])

    def ask(self, **request: object) -> None:
        write_whole(self.folder / CHANGE, {"epoch": 1, **request})
        self.resizer.read_request()


def test_a_part_tells_its_ranks_what_it_is_told_once(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    agent.ask(form=asdict(FORM))
    agent.resizer.read_request()

    assert agent.hands.told == [(0, FORM), (1, FORM)]
    agent.ask(drop="nobody wants it")
    assert agent.hands.told[2:] == [(n, Drop(1, "nobody wants it")) for n in (0, 1)]
    assert agent.lines.written == []  # the ranks answer


def test_a_rank_whose_line_was_broken_is_told_again(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    agent.resizer.repeat(1)
    agent.ask(form=asdict(FORM))
    agent.resizer.repeat(1)
    agent.ask(drop="its ranks did not switch")
    agent.resizer.repeat(1)
    agent.resizer.repeat(4)  # one that is to join later

    drop = Drop(1, "its ranks did not switch")
    assert agent.hands.told == [
        *((0, FORM), (1, FORM), (1, FORM)),
        *((0, drop), (1, drop), (1, FORM), (1, drop)),
    ]


def test_a_part_answers_for_ranks_that_never_heard_of_what_is_given_up(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    agent.ask(drop="its node is gone")  # written over `form` before the agent had read that

    dropped = {"event": "dropped", "epoch": 1, "number": 0, "reason": "its node is gone"}
    assert agent.lines.written == [dropped]


def test_a_rank_that_leaves_by_agreement_is_no_end_of_the_attempt(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    agent.ask(form=asdict(FORM))

    assert agent.resizer.is_member(1)
    agent.resizer.on_message(1, Leaving("resized"))

    assert agent.resizer.exited(1, 0)
    assert not agent.resizer.exited(0, 1)
    assert agent.hands.settled == [((0,), {0: 0})]
    assert agent.resizer.released is None


def test_a_part_that_all_its_ranks_have_left_was_released(tmp_path: Path) -> None:
    agent = Agent(tmp_path, replace(SPEC, devices=(0,), first_rank=1), 1)
    agent.ask(form=asdict(FORM))
    agent.resizer.on_message(1, Leaving("resized"))

    assert agent.resizer.released == ("released", "")


def test_ranks_are_counted_anew_when_they_have_changed(tmp_path: Path) -> None:
    agent = Agent(tmp_path, replace(SPEC, devices=(0,), first_rank=2), 2)
    assert agent.resizer.rank_of(2) == 2
    agent.ask(form=asdict(FORM))
    agent.resizer.on_message(2, Adopted(1, 10, 0.1))

    assert agent.resizer.rank_of(2) == 1


@pytest.mark.parametrize("adopted", [True, False])
def test_a_rank_that_joins_is_one_of_the_attempts_once_it_has_adopted(
    tmp_path: Path, adopted: bool
) -> None:
    spec = replace(SPEC, devices=(5,), first_rank=3, join=1, members=(0, 2, 3))
    agent = Agent(tmp_path, spec, 3)
    assert agent.resizer.join_variables(3) == {"RANK": "2", "WEFT_MEMBER": "3", "WEFT_JOIN": "1"}
    agent.resizer.on_message(3, Built(1))
    agent.ask(form=asdict(FORM))
    if adopted:
        agent.resizer.on_message(3, Adopted(1, 10, 0.1))

    assert agent.resizer.is_member(3) == adopted
    assert agent.resizer.exited(3, 9) != adopted
    assert (agent.resizer.released is None) == adopted


def test_what_ranks_say_of_a_change_is_written_down(tmp_path: Path) -> None:
    agent = Agent(tmp_path, SPEC, 0, 1)
    for message in (CanResize(0.5, True), Built(1), Dropped(1, "no room")):
        agent.resizer.on_message(0, message)
    agent.ask(meet=True)

    can, built, dropped, meeting = agent.lines.written
    assert can == {"event": "resizable", "state_gb": 0.5, "several": True}
    assert built == {"event": "built", "epoch": 1, "number": 0}
    assert dropped == {"event": "dropped", "epoch": 1, "number": 0, "reason": "no room"}
    assert (meeting["event"], meeting["epoch"]) == ("meeting", 1)
    assert int(meeting["store"].removeprefix("tcp://127.0.0.1:")) > 0


# ---- where new ranks are started by the agent that is there


@dataclass(frozen=True, slots=True)
class NoProcess(Rank):
    """Signals to it are noted."""

    killed: list[int]

    def signal(self, what: signal.Signals) -> None:
        assert what == signal.SIGKILL
        self.killed.append(self.number)


class Alone:
    """Ranks on devices 0 and 1 that are only numbers, and what is done to them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = folder, Lines()
        self.spec = AttemptSpec("job", 1, ("true",), "/", str(folder), (0, 1), most_ranks=4)
        self.spec = replace(self.spec, world_size=2)
        self.ranks: dict[int, Rank] = {}
        self.told: list[tuple[int, FromAgent]] = []
        self.killed: list[int] = []
        self.settled: list[tuple[int, ...]] = []
        self.broken = False
        journal: Any = self.lines
        self.resizer = Resizer(folder, self.spec, journal, self.ranks, self)
        for number in (0, 1):
            self._add(number)
        self.resizer.set_first_ranks([0, 1])
        self.resizer.on_message(0, CanResize(0.1))

    def _add(self, number: int) -> None:
        self.ranks[number] = NoProcess(number, 1 << 22, 0, -1, None, self.killed)

    def start_new(self, number: int, spec: AttemptSpec, local: int, env: Mapping[str, str]) -> None:
        if self.broken:
            raise OSError("no memory")
        assert env["WEFT_MEMBER"] == str(number)
        assert spec.devices[local] == number
        self._add(number)

    def send_to_rank(self, number: int, message: FromAgent) -> None:
        self.told.append((number, message))

    def apply_spec(self, spec: AttemptSpec, places: Mapping[int, int]) -> None:
        assert {*places.values()} == {*range(len(spec.devices))}
        self.settled.append(spec.devices)

    def ask(self, epoch: int, *devices: int, limit_s: float = 60.0) -> None:
        """Ranks on these devices; in these tests each has the number of its device."""
        spec = replace(self.spec, devices=devices, resize_limit_s=limit_s)
        self.request(epoch, meet=True, spec=asdict(spec), numbers=devices, gpus=devices)

    def form(self, epoch: int, *members: int) -> None:
        new = tuple(number for number in members if number > 1)
        self.request(epoch, form=asdict(GroupPlan(epoch, members, new, (0,), "store", 0, 1)))

    def request(self, epoch: int, **request: object) -> None:
        write_whole(self.folder / CHANGE, {"epoch": epoch, **request})
        self.resizer.read_request()
        self.resizer.poll()

    def on_message(self, number: int, message: FromRank) -> None:
        self.resizer.on_message(number, message)
        self.resizer.poll()

    def gone(self, number: int, code: int = 0) -> bool:
        del self.ranks[number]
        own = self.resizer.exited(number, code)
        self.resizer.poll()
        return own

    def written(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines.written if line["event"] == event]


def test_an_agent_starts_new_ranks_once_and_says_where_they_meet(tmp_path: Path) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 0, 1, 2)
    agent.resizer.read_request()

    assert [*agent.ranks] == [0, 1, 2]
    assert agent.written("meeting") == [
        {"event": "meeting", "epoch": 1, "store": f"{tmp_path}/.ranks-1-1"}
    ]
    agent.form(1, 0, 1, 2)
    assert [number for number, message in agent.told if isinstance(message, GroupPlan)] == [0, 1, 2]


def test_an_agent_settles_when_those_that_leave_are_gone(tmp_path: Path) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 2)
    agent.form(1, 2)
    agent.on_message(2, Adopted(1, 40, 0.25))

    assert agent.resizer.changing
    assert agent.gone(0)
    assert agent.written("settled") == []
    assert agent.gone(1)
    (line,) = agent.written("settled")
    assert [*line["ranks"]] == ["2"]
    assert agent.settled == [(2,)]
    assert (agent.resizer.first, agent.resizer.rank_of(2)) == (2, 0)
    assert not agent.resizer.changing


def test_a_rank_that_has_left_says_that_all_agreed_before_the_new_one_says_so(
    tmp_path: Path,
) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 2)
    agent.form(1, 2)
    for number in (0, 1):
        agent.on_message(number, Leaving("resized"))
        assert agent.gone(number), "it is no end of the attempt"
    assert agent.killed == []
    assert agent.written("settled") == []

    agent.on_message(2, Adopted(1, 40, 0.25))

    assert [line["epoch"] for line in agent.written("settled")] == [1]
    assert agent.resizer.members == [2]


def test_a_new_rank_that_dies_after_the_old_ones_have_left_is_an_end_of_the_attempt(
    tmp_path: Path,
) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 2)
    agent.form(1, 2)
    agent.on_message(0, Leaving("resized"))

    assert not agent.gone(2, -9)


def test_a_new_rank_that_takes_no_step_after_the_old_ones_have_left_is_ended(
    tmp_path: Path,
) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 2, limit_s=0.0)
    agent.form(1, 2)
    agent.on_message(0, Leaving("resized"))

    assert {*agent.killed} == {2}
    assert agent.resizer.members == [2]


def test_a_new_rank_that_leaves_says_nothing_of_the_old_ones(tmp_path: Path) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 2)
    agent.form(1, 2)

    agent.on_message(2, Leaving("resized", "the state did not come"))

    assert agent.resizer.members == [0, 1]


def test_what_is_undone_is_said_when_the_new_ranks_are_gone(tmp_path: Path) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 0, 1, 2)
    agent.request(1, undo=True)

    assert agent.killed == [2]
    assert agent.written("undone") == []
    assert agent.gone(2, -9)
    assert [line["epoch"] for line in agent.written("undone")] == [1]
    assert agent.settled == [(0, 1)]
    agent.ask(2, 0, 1, 3)
    assert [*agent.ranks] == [0, 1, 3]


def test_what_never_began_here_is_undone_at_once(tmp_path: Path) -> None:
    agent = Alone(tmp_path)
    agent.request(1, undo=True)  # written over the request to begin before the agent had read that

    assert agent.written("undone") == [{"event": "undone", "epoch": 1}]
    assert agent.settled == []


def test_a_change_long_after_another_is_neither_ended_nor_settled_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 0, 1, 2)
    agent.form(1, 0, 1, 2)
    agent.on_message(0, Adopted(1, 40, 0.25))
    monkeypatch.setattr(resizer, "LEAVE_S", -1.0)  # a long time has passed

    agent.ask(2, 0, 1, 2, 3)
    agent.on_message(1, Adopted(1, 40, 0.25))  # said late

    assert agent.killed == []
    assert [line["epoch"] for line in agent.written("settled")] == [1]
    agent.form(2, 0, 1, 2, 3)
    agent.on_message(0, Adopted(2, 60, 0.25))
    assert [line["epoch"] for line in agent.written("settled")] == [1, 2]


def test_ranks_that_cannot_be_started_are_answered(tmp_path: Path) -> None:
    agent = Alone(tmp_path)
    agent.broken = True
    agent.ask(1, 0, 1, 2)

    (line,) = agent.written("dropped")
    assert "new rank 2 could not be started: no memory" in line["reason"]
    agent.request(1, undo=True)
    assert [line["epoch"] for line in agent.written("undone")] == [1]


def test_an_attempt_whose_ranks_have_ended_keeps_no_new_ones(tmp_path: Path) -> None:
    agent = Alone(tmp_path)
    agent.ask(1, 0, 1, 2)

    assert not agent.gone(0)
    assert agent.killed == []
    assert not agent.gone(1)
    assert agent.killed == [2]


def test_one_process_for_all_devices_cannot_be_changed(tmp_path: Path) -> None:
    agent = Agent(tmp_path, replace(SPEC, part=False))
    agent.resizer.on_message(0, CanResize(0.1))

    assert agent.lines.written == []
