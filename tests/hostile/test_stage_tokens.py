"""Whatever one rank says to its node's coordinator, another that shares the node gets its turns."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from weft.base.errors import WireError
from weft.base.tokens import Ask, Free, FromCoordinator, Granted, Inspect, Join
from weft.node.tokens.coordinator import FIRST_S, Coordinator
from weft.node.tokens.disciplines import DISCIPLINES, discipline, within_groups
from weft.node.tokens.members import MOST_TOKENS, MOST_WAITING, Key

HONEST, STRANGER = Key(1), Key(2)
GPU = ("gpu:0",)
STAGE_S, TURNS = 0.1, 5
SOON_S = 3 * FIRST_S  # two leases that nobody gives back, each as long as one may last

ODD = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1.0, 0.0, 5e-324, 0.1, 1e9])
NUMBERS = st.integers(-3, 3) | st.just(10**30)
TOKENS = st.lists(st.sampled_from(["gpu:0", "gpu:0", "gpu:1", "io", "", "x" * 999]), max_size=4)
JOINS = st.builds(
    Join,
    st.sampled_from(["honest", "stranger"]),
    NUMBERS,
    NUMBERS,
    st.sampled_from(["guaranteed", "opportunistic", "nonsense"]),
    st.sampled_from([math.nan, math.inf, -1.0, 0.0, 1.0]),  # the engine's terms have the right ones
    ODD,
    TOKENS.map(tuple),
)
MESSAGES = st.one_of(
    JOINS,
    st.builds(Ask, NUMBERS, TOKENS.map(tuple)),
    st.builds(Ask, NUMBERS, st.just(GPU)),
    st.builds(Free, NUMBERS, ODD, NUMBERS),
    st.just(Inspect()),
)
STEPS = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 5.0, 100.0]), MESSAGES), max_size=25)


class Node:
    """A coordinator, its clock, and a rank that does as it should beside one that does not."""

    def __init__(self, order: str) -> None:
        self.coordinator = Coordinator(within_groups(discipline(order)))
        self.now = 1000.0
        self.granted: list[int] = []
        self.say(HONEST, Join("honest", 0, 1, gpus=GPU))
        self.say(STRANGER, Join("stranger", 0, 2, gpus=GPU))

    def say(self, key: Key, message: Any) -> None:
        try:
            out = self.coordinator.handle(self.now, key, message)
        except WireError:
            assert key == STRANGER
            out = self.coordinator.lost(self.now, key)
        self._hear(out)

    def pass_time(self, seconds: float) -> None:
        """With every look that the coordinator wishes for on the way."""
        until = self.now + seconds
        while (at := self.coordinator.wake_at) <= until:
            self.now = max(at, self.now + 1e-3)
            self._hear(self.coordinator.tick(self.now))
        self.now = max(self.now, until)

    def take_turn(self, stage: int) -> float:
        """How long the one who does as it should waits for a turn."""
        began = self.now
        self.say(HONEST, Ask(stage, GPU))
        while stage not in self.granted and self.now - began < 2 * SOON_S:
            self.pass_time(5.0)
        waited = self.now - began
        self.pass_time(STAGE_S)
        self.say(HONEST, Free(stage, STAGE_S))
        return waited

    def _hear(self, out: list[tuple[Key, FromCoordinator]]) -> None:
        self.granted += [m.stage for key, m in out if key == HONEST and isinstance(m, Granted)]


@pytest.mark.parametrize("order", [name for name in DISCIPLINES if name != "none"])
@examples(150)
@given(steps=STEPS)
def test_nothing_that_a_rank_says_keeps_the_other_from_its_turn(order: str, steps: Any) -> None:
    node = Node(order)
    for pause, message in steps:
        node.pass_time(pause)
        node.say(STRANGER, message)

    waits = [node.take_turn(stage) for stage in range(TURNS)]

    assert max(waits) <= SOON_S


@pytest.mark.parametrize("order", ["lockstep", "work-conserving", "timeslice", "paced"])
@pytest.mark.parametrize("says", [math.nan, math.inf, 1e308, -1.0])
def test_a_rank_that_holds_on_and_lies_about_it_does_not_hold_longer_each_time(
    order: str, says: float
) -> None:
    node = Node(order)

    for stage in range(12):
        node.say(STRANGER, Ask(stage, GPU))
        assert node.take_turn(stage) <= SOON_S
        node.say(STRANGER, Free(stage, says))


def test_a_rank_may_not_ask_for_more_than_anybody_needs() -> None:
    node = Node("work-conserving")

    for stage in range(MOST_WAITING + 5):
        node.say(STRANGER, Ask(stage, GPU))
    assert STRANGER not in node.coordinator.book.members

    node.say(STRANGER, Join("stranger", 0, 2))
    for stage in range(MOST_TOKENS + 5):
        node.say(STRANGER, Ask(stage, (f"x{stage}",)))
        node.say(STRANGER, Free(stage, 0.1))
    assert STRANGER not in node.coordinator.book.members
    assert node.take_turn(0) <= SOON_S
