"""The coordinator in virtual time: members are loops over stages of known length."""

from __future__ import annotations

import heapq
import itertools
import socket
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from weft.base import tokens as wire
from weft.base.errors import WireError
from weft.node.errors import NodeError
from weft.node.tokens.coordinator import Coordinator, Out
from weft.node.tokens.disciplines import DISCIPLINES, Timeslice, discipline, together, within_groups
from weft.node.tokens.members import Key, TokenMember, TokenState
from weft_train.base.environment import Environment
from weft_train.turns.gate import TurnTokens

Stage = tuple[tuple[str, ...], float]
IO, GPU = ("io",), ("gpu:0",)


@dataclass
class Loop:
    """A well-behaved member: asks, works, frees, and keeps leases as the client does."""

    stages: list[Stage]
    tier: str = "guaranteed"
    weight: float = 1.0
    phase: float = 0.0
    gpus: tuple[str, ...] = ()
    dies_at: float = float("inf")
    hangs_at: float = float("inf")
    at: int = 0
    number: int = 0
    done: int = 0
    leases: dict[tuple[str, ...], list[int]] = field(default_factory=dict)  # number, left, uses


class World:
    """Members, a coordinator, and a clock that jumps."""

    def __init__(
        self, text: str, *loops: Loop, slots: dict[str, int] | None = None, late_s: float = 0.0
    ) -> None:
        self.late_s = late_s  # that the clock oversleeps
        self.coordinator = Coordinator(within_groups(discipline(text)), slots)
        self.loops = dict(zip(map(Key, itertools.count(1)), loops, strict=False))
        self.now = 0.0
        self.queue: list[tuple[float, int, str, Key]] = []
        self.order = itertools.count()
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.working: dict[Key, tuple[str, ...]] = {}
        for key, loop in self.loops.items():
            joins = wire.Join("j", key, key, loop.tier, loop.weight, loop.phase, loop.gpus)
            self.coordinator.handle(0.0, key, joins)
            if loop.dies_at < float("inf"):
                heapq.heappush(self.queue, (loop.dies_at, next(self.order), "die", key))
        for key in self.loops:
            self._begin(key)

    def run(self, until: float) -> World:
        while self.now < until:
            wake = self.coordinator.wake_at
            coming = self.queue[0][0] if self.queue else float("inf")
            self.now = min(max(min(wake + self.late_s, coming), self.now), until)
            if self.now >= until:
                break
            if wake + self.late_s <= coming:
                if self.now >= self.coordinator.wake_at:
                    self._deliver(self.coordinator.tick(self.now))
                continue
            _, _, what, key = heapq.heappop(self.queue)
            if key not in self.loops:
                continue
            if what == "die":
                self._stopped(key)
                del self.loops[key]
                self._deliver(self.coordinator.lost(self.now, key))
            else:
                self._end(key)
        return self

    def done(self) -> list[int]:
        return [loop.done for loop in self.loops.values()]

    def _begin(self, key: Key) -> None:
        loop = self.loops[key]
        tokens, _ = loop.stages[loop.at]
        if tokens in loop.leases:
            self._work(key)
            return
        loop.number += 1
        self._deliver(self.coordinator.handle(self.now, key, wire.Ask(loop.number, tokens)))

    def _end(self, key: Key) -> None:
        loop = self.loops[key]
        tokens, length = loop.stages[loop.at]
        self._stopped(key)
        loop.at = (loop.at + 1) % len(loop.stages)
        loop.done += loop.at == 0
        if (lease := loop.leases.get(tokens)) is not None:
            lease[1] -= 1
            lease[2] += 1
            if lease[1] < 1:
                self._give_back(key, tokens, length)
        self._begin(key)

    def _give_back(self, key: Key, tokens: tuple[str, ...], length: float) -> None:
        number, _, uses = self.loops[key].leases.pop(tokens)
        used = wire.Free(number, length * uses, uses)
        self._deliver(self.coordinator.handle(self.now, key, used))

    def _work(self, key: Key) -> None:
        loop = self.loops[key]
        tokens, length = loop.stages[loop.at]
        self.working[key] = tokens
        for token in tokens:
            self.inside[token] += 1
            self.most[token] = max(self.most[token], self.inside[token])
        if self.now < loop.hangs_at:
            heapq.heappush(self.queue, (self.now + length, next(self.order), "end", key))

    def _stopped(self, key: Key) -> None:
        for token in self.working.pop(key, ()):
            self.inside[token] -= 1

    def _deliver(self, out: Out) -> None:
        for key, message in out:
            loop = self.loops[key]
            if isinstance(message, wire.Granted):
                assert message.stage == loop.number
                left = message.iterations or sys.maxsize
                loop.leases[loop.stages[loop.at][0]] = [message.stage, left, 0]
                self._work(key)
            elif isinstance(message, wire.Recall):
                self._recall(key, message.stage)
            elif isinstance(message, wire.Expired):
                self._stopped(key)
                loop.leases = {t: at for t, at in loop.leases.items() if at[0] != message.stage}

    def _recall(self, key: Key, stage: int) -> None:
        loop = self.loops[key]
        for tokens, lease in list(loop.leases.items()):
            if lease[0] == stage:
                lease[1] = 1 if self.working.get(key) == tokens else 0
                if not lease[1]:
                    self._give_back(key, tokens, dict(loop.stages)[tokens])


def io_heavy() -> Loop:
    return Loop([(IO, 0.080), (GPU, 0.020)])


def gpu_heavy() -> Loop:
    return Loop([(IO, 0.005), (GPU, 0.095)])


@pytest.mark.parametrize("text", ["lockstep", "work-conserving"])
def test_a_complementary_pair_overlaps(text: str) -> None:
    world = World(text, io_heavy(), gpu_heavy()).run(23.0)

    # max(80, 95) + max(20, 5) = 115 ms for both; taking turns would be 200.
    assert min(world.done()) >= 195
    assert world.most == {"io": 1, "gpu:0": 1}


def test_in_lock_step_phases_say_who_goes_first() -> None:
    late, early = Loop([(IO, 1.0), (GPU, 1.0)], phase=0.25), Loop([(IO, 1.0), (GPU, 1.0)])

    world = World("lockstep", late, early).run(0.5)

    assert [world.working.get(Key(key)) for key in (1, 2)] == [None, IO]


def test_in_lock_step_more_members_than_stages_go_round_in_the_order_of_their_phases() -> None:
    loops = [Loop([(IO, 1.0), (GPU, 1.0)], phase=at / 4) for at in (2, 0, 1)]
    world = World("lockstep", *loops)
    order = []
    for slot in range(9):
        world.run(slot + 0.5)
        order += [key for key, tokens in world.working.items() if tokens == IO]

    assert order == [2, 3, 1] * 3


@pytest.mark.parametrize("text", ["lockstep", "timeslice:quantum_s=0.5"])
def test_groups_on_different_devices_do_not_wait_for_each_other(text: str) -> None:
    quick = [Loop([(GPU, 0.01)], gpus=GPU) for _ in range(2)]
    slow = [Loop([(("gpu:1",), 1.0)], gpus=("gpu:1",)) for _ in range(2)]

    world = World(text, *quick, *slow).run(20.2)

    assert sum(loop.done for loop in quick) > 1900
    assert sum(loop.done for loop in slow) >= 18
    assert world.most == {"gpu:0": 1, "gpu:1": 1}


@pytest.mark.parametrize(
    ("devices", "groups"),
    [
        (["", ""], [{1, 2}]),
        (["0", "1"], [{1}, {2}]),
        (["0", "1", "01"], [{1, 2, 3}]),
        (["0", "1", ""], [{1, 2, 3}]),
        (["01", "2", "1", "23"], [{1, 3}, {2, 4}]),
    ],
)
def test_members_belong_together_through_the_devices_they_share(
    devices: list[str], groups: list[set[int]]
) -> None:
    book = TokenState()
    for number, gpus in enumerate(devices, start=1):
        key = Key(number)
        book.members[key] = TokenMember(key, "j", 0, "guaranteed", 1.0, number, gpus=tuple(gpus))

    assert sorted(together(book).values(), key=min) == groups


def test_time_slices_give_the_sum_of_both() -> None:
    world = World("timeslice:quantum_s=0.5", io_heavy(), gpu_heavy()).run(20.0)

    assert sum(world.done()) == pytest.approx(200, abs=4)
    assert abs(world.done()[0] - world.done()[1]) <= 10


def test_without_turns_everybody_works_at_once() -> None:
    world = World("none", io_heavy(), gpu_heavy()).run(10.0)

    assert world.done() == pytest.approx([100, 100], abs=1)
    assert world.most["io"] == 2


def test_weights_share_a_token() -> None:
    loops = Loop([(GPU, 0.01)], weight=3.0), Loop([(GPU, 0.01)])

    world = World("work-conserving", *loops).run(40.0)

    assert world.done()[0] / world.done()[1] == pytest.approx(3.0, rel=0.1)


def test_an_opportunistic_job_gives_way_and_keeps_to_its_duty() -> None:
    guest = Loop([(GPU, 0.010)], tier="opportunistic")
    host = Loop([(GPU, 0.050), (IO, 0.050)])

    alone = World("paced:duty=0.25", Loop([(GPU, 0.010)], tier="opportunistic")).run(10.0)
    light = World("paced", Loop([(GPU, 0.010)], tier="opportunistic", weight=0.25)).run(10.0)
    beside = World("paced:duty=0.25", host, guest).run(10.0)

    assert alone.done()[0] == pytest.approx(1000, abs=5), "nobody is there to give way to"
    assert light.done()[0] == pytest.approx(250, abs=5)
    assert beside.done()[0] >= 90, "the guaranteed job loses at most one guest's stage a turn"
    assert 50 < beside.done()[1] < 250


def test_a_gang_is_granted_all_or_nothing_and_is_not_starved() -> None:
    gang = Loop([(("gpu:0", "gpu:1"), 0.03)])
    singles = [Loop([(("gpu:0",), 0.02)]), Loop([(("gpu:1",), 0.031)])]

    world = World("work-conserving", gang, *singles).run(30.0)

    assert world.most == {"gpu:0": 1, "gpu:1": 1}
    assert world.done()[0] > 40
    assert min(world.done()[1:]) > 40


def test_two_gangs_that_want_the_same_gpus_in_another_order_do_not_deadlock() -> None:
    first, two = Loop([(("gpu:0", "gpu:1"), 0.01)]), Loop([(("gpu:1", "gpu:0"), 0.01)])

    world = World("work-conserving", first, two).run(10.0)

    assert world.done() == [500, 500] or sum(world.done()) >= 998


@pytest.mark.parametrize("text", [name for name in DISCIPLINES if name != "none"])
def test_a_dead_holders_tokens_go_to_the_next_at_once(text: str) -> None:
    doomed = Loop([(GPU, 1000.0)], dies_at=1.5)

    world = World(text, doomed, gpu_heavy()).run(4.0)

    assert world.done()[0] >= 15


def test_a_holder_that_hangs_loses_its_lease() -> None:
    stuck = Loop([(GPU, 0.02)], hangs_at=2.0)

    world = World("work-conserving", stuck, gpu_heavy()).run(10.0)

    lost = world.coordinator.book.members[Key(1)]
    assert lost.expired == 1
    assert world.done()[1] > 50


def test_lockstep_does_not_wait_for_a_member_that_says_nothing() -> None:
    world = World("lockstep:patience_s=0.5", gpu_heavy(), Loop([(IO, 0.01)], dies_at=99.0))
    world.coordinator.handle(0.0, Key(9), wire.Join("quiet", 0, 0))

    world.run(5.0)

    assert min(world.done()) >= 20


stages = st.lists(
    st.tuples(
        st.sampled_from([IO, GPU, ("gpu:1",), ("gpu:0", "gpu:1"), ("io", "net")]),
        st.floats(0.01, 0.2),
    ),
    min_size=1,
    max_size=3,
)


@examples(60)
@given(
    st.sampled_from([name for name in DISCIPLINES if name != "none"]),
    st.lists(st.builds(Loop, stages, st.sampled_from(["guaranteed", "opportunistic"])),
             min_size=1, max_size=4),
)  # fmt: skip
def test_no_token_is_ever_held_twice_and_everybody_gets_on(text: str, loops: list[Loop]) -> None:
    loops[0].tier = "guaranteed"

    world = World(text, *loops).run(6.0)

    assert max(world.most.values()) == 1
    started = [loop.done or loop.number > 1 for loop in loops if loop.tier == "guaranteed"]
    assert all(started)
    if text != "paced":
        assert all(loop.done or loop.number > 1 for loop in loops)


def test_slots_let_several_hold_a_token() -> None:
    world = World("work-conserving", *[Loop([(IO, 0.1)]) for _ in range(3)], slots={"io": 2})

    assert world.run(5.0).most["io"] == 2


def test_short_stages_are_leased_several_at_a_time_and_alone_until_recalled() -> None:
    coordinator = Coordinator(discipline("work-conserving"))
    coordinator.handle(0.0, Key(1), wire.Join("a", 0, 1))
    coordinator.handle(0.0, Key(2), wire.Join("b", 0, 2))

    ((_, alone),) = coordinator.handle(0.0, Key(1), wire.Ask(1, GPU))
    ((_, recall),) = coordinator.handle(0.1, Key(2), wire.Ask(1, GPU))
    ((_, other),) = coordinator.handle(0.2, Key(1), wire.Free(1, 0.05, 100))
    coordinator.handle(0.2005, Key(1), wire.Ask(2, GPU))
    out = coordinator.handle(0.2010, Key(2), wire.Free(1, 0.0005, 1))

    assert isinstance(alone, wire.Granted)
    assert alone.iterations == 0
    assert recall == wire.Recall(1)
    assert isinstance(other, wire.Granted)
    assert other.iterations == 1
    ((_, short),) = out
    assert isinstance(short, wire.Granted)
    assert 1 < short.iterations <= 10


@pytest.mark.parametrize("length", [0.0005, 0.01])
def test_two_that_hold_what_the_other_wants_do_not_wait_for_the_end_of_a_lease(
    length: float,
) -> None:
    # One begins with the disk and one with the GPU; alone on its token each gets an endless lease.
    stages: list[Stage] = [(IO, length), (GPU, length)]
    world = World("work-conserving", Loop(stages), Loop(stages[::-1])).run(2.0)

    assert min(loop.done for loop in world.loops.values()) > 0.7 * 2.0 / (2 * length)
    assert [m.expired for m in world.coordinator.book.members.values()] == [0, 0]


def test_an_idle_lease_goes_back_while_the_member_waits_for_another_token(tmp_path: Path) -> None:
    """The client's side: it hears of the recall inside its own wait."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(str(tmp_path / "tokens"))
    door.listen()
    heard: list[wire.FromMember] = []

    def coordinate() -> None:
        line, _ = door.accept()
        words = wire.from_member()
        with line:
            while chunk := line.recv(65_536):
                for message in words.feed(chunk):
                    heard.append(message)
                    for answer in answers(message):
                        line.sendall(wire.FROM_COORDINATOR.encode(answer))

    def answers(message: wire.FromMember) -> list[wire.FromCoordinator]:
        if isinstance(message, wire.Ask) and message.tokens == GPU:
            return [wire.Granted(message.stage, 0, 60.0)]
        if isinstance(message, wire.Ask):
            return [wire.Recall(1)]  # and the disk only when the GPU has come back
        return [wire.Granted(2, 1, 60.0)] if isinstance(message, wire.Free) else []

    coordinator = threading.Thread(target=coordinate)
    coordinator.start()
    tokens = TurnTokens(Environment(job="a", coordinator=str(tmp_path / "tokens")))
    tokens.acquire(*GPU)
    tokens.release(*GPU, used_s=0.1)
    tokens.acquire(*IO)

    assert [type(message) for message in heard] == [wire.Join, wire.Ask, wire.Ask, wire.Free]
    assert tokens.lost == 0
    tokens.close()
    coordinator.join()
    door.close()


def test_looking_shows_every_member() -> None:
    world = World("work-conserving", io_heavy(), gpu_heavy()).run(5.0)

    answers = [message for _, message in world.coordinator.handle(5.0, Key(77), wire.Inspect())]

    seen = [answer for answer in answers if isinstance(answer, wire.Inspected)]
    assert [answer.rank for answer in seen] == [1, 2, 0]
    assert seen[0].values["used_s.io"] > 3.0
    assert seen[1].values["held_s.gpu:0"] > 3.0
    assert seen[2].values == {"members": 2.0, "up_s": 5.0}


def test_a_discipline_is_named_with_its_parameters() -> None:
    made = discipline("timeslice:quantum_s=0.5")

    assert isinstance(made, Timeslice)
    assert made.quantum_s == 0.5
    with pytest.raises(NodeError, match="did you mean 'lockstep'"):
        discipline("lockstop")
    with pytest.raises(NodeError, match="quantum_s"):
        discipline("timeslice:quantum=1")
    with pytest.raises(NodeError, match="_since"):
        discipline("timeslice:_since=1")


def test_who_asks_before_joining_is_refused() -> None:
    with pytest.raises(WireError, match="ask before join"):
        Coordinator(discipline("none")).handle(0.0, Key(1), wire.Ask(1, GPU))


def test_a_turn_that_came_due_after_the_last_one_is_due_at_once() -> None:
    """A clock does not stand still between a turn and the question when the next one is."""
    coordinator = Coordinator(discipline("paced"))
    coordinator.handle(0.0, Key(1), wire.Join("a", 0, 1, "opportunistic", weight=0.5))
    coordinator.handle(1.0, Key(1), wire.Ask(1, GPU))
    coordinator.handle(2.0, Key(1), wire.Free(1, 1.0, 1))
    assert coordinator.handle(2.9, Key(1), wire.Ask(2, GPU)) == []
    assert coordinator.wake_at == pytest.approx(3.0, abs=1e-4)

    ((_, granted),) = coordinator.tick(3.2)  # the machine is busy, nobody is on time

    assert isinstance(granted, wire.Granted)


@pytest.mark.parametrize("text", ["paced", "timeslice:quantum_s=0.3", "lockstep:patience_s=0.3"])
def test_a_clock_that_is_always_late_costs_no_more_than_it_is_late(text: str) -> None:
    """As the server does it: ask when, sleep a little too long, ask again, tick if it is time."""

    def run(late_s: float) -> int:
        tier = "opportunistic" if text == "paced" else "guaranteed"
        loops = [Loop([(GPU, 0.020), (IO, 0.020)], tier, weight=0.25) for _ in range(2)]
        return sum(World(text, *loops, late_s=late_s).run(20.0).done())

    assert run(0.002) > 0.75 * run(0.0)
