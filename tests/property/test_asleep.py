"""Jobs that sleep, whatever policies want and engines answer: nobody and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.asleep.rules import StopRules
from weft.core.codec.event_lines import event_line, read_event
from weft.core.events import event as facts
from weft.core.events.actions import Resume, Sleep, Start, Stop
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.releasing import devices_of
from weft.core.state.saved_state import load_state, save_state
from weft.core.stops import SLEEPS, Rung
from weft.pieces.pack import pack
from weft.runtime.recovery.recover import wishes_of
from weft.stack.layers import EligibleJobs

CLUSTER = parse_cluster("2x2:h200")
Asked = Start | Stop | Sleep | Resume


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Runs whom the random numbers of a decision put first, and stops whom they put last."""

    about = About("shuffled", "for tests")

    def decide(self, view: View) -> Plan:
        plan = pack(view, view.rng.permutation(len(view.table)))
        return Plan(plan.changes, wake_at=view.now + 1.0)


def memory(job: Job, on: Allocation) -> float:
    return 60.0 if job.id < "j4" else 90.0


@dataclass
class World:
    """An engine that answers in any order, and what it knows of attempts."""

    scheduler: Scheduler
    log: list[tuple[float, facts.Event]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    running: dict[tuple[JobId, int], Allocation] = field(default_factory=dict)
    asleep: dict[tuple[JobId, int], Allocation] = field(default_factory=dict)
    now: float = 0.0

    def tell(self, event: facts.Event) -> None:
        self.now += 0.25
        self.asked += [
            action
            for action in self.scheduler.step(self.now, [event])
            if isinstance(action, (Start, Stop, Sleep, Resume))
        ]

    def carry_out(self, at: int, well: bool) -> None:
        """Answer one of the requests; those of an attempt come in order."""
        action = self.asked.pop(self._first_of(at))
        key = _key(action)
        if isinstance(action, Start):
            self._check_free(action.on)
            self.running[key] = action.on
            self.tell(facts.Started(*key))
        elif isinstance(action, Stop):
            self.running.pop(key, None)
            self.asleep.pop(key, None)
            self.tell(facts.Stopped(*key))
        elif isinstance(action, Sleep):
            self._lie_down(action, key, well)
        elif key in self.asleep:
            self._check_free(action.on)
            assert action.on.devices == self.asleep[key].devices
            self.running[key] = self.asleep.pop(key)
            self.tell(facts.Awoke(*key))

    def _lie_down(self, action: Sleep, key: tuple[JobId, int], well: bool) -> None:
        on = self.running.get(key) or self.asleep.get(key)
        if on is None:
            return  # it has ended by itself
        if not well:
            self.tell(facts.SleepFailed(*key, "refused"))
            return
        self.running.pop(key, None)
        self.asleep[key] = on
        self.tell(facts.Slept(*key, action.rung, 0.1, 1.0))

    def _first_of(self, at: int) -> int:
        key = _key(self.asked[at])
        return next(i for i, action in enumerate(self.asked) if _key(action) == key)

    def _check_free(self, on: Allocation) -> None:
        used = {device for other in self.running.values() for device in devices_of(other)}
        assert used.isdisjoint(devices_of(on)), "two jobs run on a device"

    def end(self, at: int, how: Callable[[JobId, int], facts.Event]) -> None:
        key = [*self.running, *self.asleep][at]
        self.running.pop(key, None)
        self.asleep.pop(key, None)
        self.tell(how(*key))


def _key(action: Asked) -> tuple[JobId, int]:
    return (action.job if isinstance(action, (Stop, Sleep)) else action.job.id), action.attempt


def make_scheduler(log: list[tuple[float, facts.Event]] | None = None) -> Scheduler:
    rules = StopRules(frozenset(SLEEPS), memory=memory)
    journal = None if log is None else (lambda at, event: log.append((at, event)))
    return Scheduler(EligibleJobs(Shuffled()), CLUSTER, stops=rules, journal=journal)


def play(data: st.DataObject, steps: int) -> World:
    log: list[tuple[float, facts.Event]] = []
    world = World(make_scheduler(log), log)
    for i in range(data.draw(st.integers(2, 7))):
        world.tell(facts.Submitted(Job(JobId(f"j{i}"), demand=Demand(1 + i % 2))))
    for _ in range(steps):
        step(world, data)
    return world


def step(world: World, data: st.DataObject) -> None:
    what = data.draw(st.sampled_from(["answer"] * 6 + ["decide"] * 3 + ["end", "person", "node"]))
    jobs = [job.id for job in world.scheduler.state.table.jobs]
    alive = [*world.running, *world.asleep]
    if what == "answer" and world.asked:
        at = data.draw(st.integers(0, len(world.asked) - 1))
        world.carry_out(at, well=data.draw(st.integers(0, 5)) > 0)
    elif what == "end" and alive:
        retry = data.draw(st.booleans())
        kind = data.draw(st.sampled_from(["finished", "failed", "saved"]))
        at = data.draw(st.integers(0, len(alive) - 1))
        if kind == "saved":
            world.tell(facts.Saved(*alive[at]))
        elif kind == "finished":
            world.end(at, facts.Finished)
        else:
            world.end(at, lambda job, attempt: facts.Failed(job, attempt, retry=retry))
    elif what == "person" and jobs:
        job = data.draw(st.sampled_from(jobs))
        rung = world.scheduler.choose_stop(world.now, job)
        person: list[facts.Event] = [
            facts.Suspended(job, "me", rung),
            facts.Resumed(job),
            facts.Cancelled(job),
        ]
        world.tell(data.draw(st.sampled_from(person)))
    elif what == "node":
        node = data.draw(st.sampled_from(CLUSTER.nodes))
        up = node.id in world.scheduler.state.cluster.index
        world.tell(facts.NodeDown(node.id, drained=True) if up else facts.NodeUp(node))
    else:
        world.now += 1.0
        world.tell(facts.Woken())


def check(world: World) -> None:
    """The state agrees with what the engine knows, once everything is answered."""
    state = world.scheduler.state
    for job, sleeping in state.asleep.sleepers.items():
        row = state.table.row(job)
        if state.table.allocations[row] is None and sleeping.there:
            assert (job, sleeping.attempt) in world.asleep
    asleep = {key for key in world.asleep if not any(_key(action) == key for action in world.asked)}
    for job, attempt in asleep:
        assert state.asleep.find(job, attempt) is not None, "somebody sleeps whom nobody knows"


def settle(world: World) -> None:
    for _ in range(300):
        if not world.asked:
            return
        world.carry_out(0, well=True)
    raise AssertionError("it never comes to rest")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_and_no_device_is_used_twice(data: st.DataObject) -> None:
    world = play(data, data.draw(st.integers(5, 60)))
    settle(world)

    check(world)
    for node in CLUSTER.nodes:
        if node.id not in world.scheduler.state.cluster.index:
            world.tell(facts.NodeUp(node))
    for job in sorted(world.scheduler.state.table.suspended):
        world.tell(facts.Resumed(job))
    for _ in range(400):
        settle(world)
        if not len(world.scheduler.state.table):
            break
        if world.running:
            world.end(0, facts.Finished)
        else:
            world.now += 1.0
            world.tell(facts.Woken())
    assert not len(world.scheduler.state.table), "a job never comes to its end"
    settle(world)
    assert not world.asleep, "somebody is left asleep"
    assert not world.scheduler.state.releasing


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_log_and_a_snapshot_bring_it_back(data: st.DataObject) -> None:
    world = play(data, data.draw(st.integers(5, 60)))
    state = world.scheduler.state

    again = make_scheduler()
    for at, event in world.log:
        read = read_event(event_line(at, event))
        again.apply_event(*read)
    loaded = load_state(save_state(state), {job.id: job for job in state.table.jobs})

    for other in (again.state, loaded):
        assert save_state(other).tables["asleep"] == save_state(state).tables["asleep"]
        assert save_state(other).numbers["stops"] == save_state(state).numbers["stops"]
        assert wishes_of(other) == wishes_of(state)


def test_somebody_does_sleep() -> None:
    """The laws above would hold of a scheduler that stops everybody, too."""
    log: list[tuple[float, facts.Event]] = []
    world = World(make_scheduler(log), log)
    for i in range(6):
        world.tell(facts.Submitted(Job(JobId(f"j{i}"), demand=Demand(1))))
    for _ in range(12):
        settle(world)
        world.now += 1.0
        world.tell(facts.Woken())

    rungs = {event.rung for _, event in log if isinstance(event, facts.Slept)}
    assert rungs == {Rung.FREEZE, Rung.SUSPEND}
    assert any(isinstance(event, facts.Awoke) for _, event in log)
