"""An agent's part in changes of the ranks: when it asks, gives up, and says so."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from weft.node.attempt_log import Journal
from weft.node.ranks.rank import Rank
from weft.node.resizer import Resizer
from weft.wire.attempt import EVENTS, RESIZE, AttemptSpec, write_whole
from weft.wire.messages import Adopted, Built, CanResize, Drop, Dropped, Form, FromAgent, Leaving

NO_PID = 1 << 22


@dataclass(frozen=True, slots=True)
class NoProcess(Rank):
    """Signals to it are noted."""

    killed: list[int]

    def signal(self, what: signal.Signals) -> None:
        assert what == signal.SIGKILL
        self.killed.append(self.number)


class Agent:
    """Ranks that are only numbers, and what is done to them."""

    def __init__(self, folder: Path, *devices: int) -> None:
        self.folder = folder
        self.spec = AttemptSpec("job", 1, ("true",), "/", str(folder), devices)
        self.ranks: dict[int, Rank] = {}
        self._opened: list[int] = []
        self.told: list[tuple[int, FromAgent]] = []
        self.killed: list[int] = []
        self.settled: list[tuple[int, ...]] = []
        self.journal = Journal(folder, "")
        self.resizer = Resizer(folder, self.spec, self.journal, self.ranks, self)
        for number in range(len(devices)):
            self._add(number)
        self.resizer.begin([*self.ranks])
        self.resizer.hear(0, CanResize(0.1))

    def _add(self, number: int) -> None:
        self._opened.append(os.open(os.devnull, os.O_RDONLY))
        self.ranks[number] = NoProcess(number, NO_PID, 0, self._opened[-1], None, self.killed)

    def close(self) -> None:
        self.journal._bell.close()
        os.close(self.journal._out)
        for output in self._opened:
            os.close(output)

    def start_new(self, number: int, spec: AttemptSpec, local: int, env: Mapping[str, str]) -> None:
        assert env["WEFT_MEMBER"] == str(number)
        assert spec.devices[local] >= 0
        self._add(number)

    def tell(self, number: int, message: FromAgent) -> None:
        self.told.append((number, message))

    def settle_in(self, spec: AttemptSpec, places: Mapping[int, int]) -> None:
        assert {*places.values()} == {*range(len(spec.devices))}
        self.settled.append(spec.devices)

    def ask(self, epoch: int, *devices: int, limit_s: float = 60.0) -> None:
        spec = replace(self.spec, devices=devices, resize_limit_s=limit_s)
        write_whole(self.folder / RESIZE, {"epoch": epoch, "spec": asdict(spec)})
        self.resizer.take_up()
        self.resizer.look()

    def gone(self, number: int, code: int = 0) -> bool:
        del self.ranks[number]
        own = self.resizer.exited(number, code)
        self.resizer.look()
        return own

    def written(self, event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.folder / EVENTS).read_text().splitlines())
        return [line for line in lines if line["event"] == event]

    def forms(self) -> list[int]:
        return sorted(number for number, message in self.told if isinstance(message, Form))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path, 0, 1)
    yield made
    made.close()


def test_everybody_is_told_to_form_once_all_new_ranks_are_built(agent: Agent) -> None:
    agent.ask(1, 0, 1, 2, 3)

    agent.resizer.hear(2, Built(1))
    assert agent.forms() == []
    agent.resizer.hear(3, Built(1))
    assert agent.forms() == [0, 1, 2, 3]


def test_a_change_is_written_down_when_those_that_leave_are_gone(agent: Agent) -> None:
    agent.ask(1, 2)
    agent.resizer.hear(2, Built(1))
    agent.resizer.hear(2, Adopted(1, 40, 0.25))

    assert agent.written("resized") == []
    assert agent.gone(0)
    assert agent.gone(1)
    (line,) = agent.written("resized")
    assert (line["epoch"], line["step"], line["pause_s"]) == (1, 40, 0.25)
    assert agent.settled == [(2,)]
    assert agent.resizer.first == 2
    assert agent.resizer.rank_of(2) == 0


def test_a_rank_that_has_left_says_that_all_agreed_before_the_new_one_says_that_it_adopted(
    agent: Agent,
) -> None:
    agent.ask(1, 2)
    agent.resizer.hear(2, Built(1))
    for number in (0, 1):
        agent.resizer.hear(number, Leaving("resized"))
        assert agent.gone(number), "it is no end of the attempt"
    assert 2 in agent.ranks
    assert agent.killed == []

    agent.resizer.hear(2, Adopted(1, 40, 0.25))

    assert [line["epoch"] for line in agent.written("resized")] == [1]
    assert agent.resizer.members == [2]


def test_a_new_rank_that_dies_after_the_old_ones_have_left_is_an_end_of_the_attempt(
    agent: Agent,
) -> None:
    agent.ask(1, 2)
    agent.resizer.hear(2, Built(1))
    agent.resizer.hear(0, Leaving("resized"))

    assert not agent.gone(2, -9)
    assert agent.written("resize_failed") == []


def test_a_new_rank_that_takes_no_step_after_the_old_ones_have_left_is_ended(agent: Agent) -> None:
    agent.ask(1, 2, limit_s=0.0)
    agent.resizer.hear(2, Built(1))
    agent.resizer.hear(0, Leaving("resized"))

    agent.resizer.look()

    assert {*agent.killed} == {2}
    assert agent.resizer.members == [2]


def test_a_new_rank_that_leaves_says_nothing_of_the_old_ones(agent: Agent) -> None:
    agent.ask(1, 2)
    agent.resizer.hear(2, Built(1))

    agent.resizer.hear(2, Leaving("resized", "the state did not come"))

    assert agent.resizer.members == [0, 1]


def test_a_new_rank_that_dies_after_the_call_to_form_is_dropped_by_the_old_ones(
    agent: Agent,
) -> None:
    agent.ask(1, 0, 1, 2)
    agent.resizer.hear(2, Built(1))

    assert agent.gone(2, -9)
    assert {number for number, message in agent.told if isinstance(message, Drop)} == {0, 1}
    assert agent.written("resize_failed") == []  # they may be switching
    agent.resizer.hear(0, Dropped(1, "voted down"))
    (line,) = agent.written("resize_failed")
    assert "exit code -9" in line["reason"]
    assert agent.resizer.members == [0, 1]


def test_new_ranks_that_are_never_built_are_given_up(agent: Agent) -> None:
    agent.ask(1, 0, 1, 2, limit_s=0.0)
    agent.resizer.look()

    assert agent.written("resize_failed") == []  # not before they are gone
    agent.gone(2, -9)
    (line,) = agent.written("resize_failed")
    assert "not ready" in line["reason"]


def test_a_newer_change_is_begun_when_the_older_one_is_undone(agent: Agent) -> None:
    agent.ask(1, 0, 1, 2)
    agent.ask(2, 0)

    agent.gone(2, -9)
    assert [line["epoch"] for line in agent.written("resizing")] == [1, 2]
    assert agent.written("resize_failed") == []
    assert agent.forms() == [0, 1]


def test_an_attempt_that_is_stopped_has_no_new_ranks(agent: Agent) -> None:
    agent.ask(1, 0, 1, 2)
    agent.resizer.stopping = True
    agent.resizer.look()

    agent.gone(2, -9)
    assert [line["epoch"] for line in agent.written("resize_failed")] == [1]


def test_a_rank_of_the_present_epoch_that_dies_is_the_agents_business(agent: Agent) -> None:
    agent.ask(1, 0, 1, 2)

    assert not agent.gone(1, -9)


def test_ranks_that_never_said_they_can_change_are_left_alone(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    agent.ask(1, 0)

    (line,) = agent.written("resize_failed")
    assert "cannot change" in line["reason"]
    agent.close()
