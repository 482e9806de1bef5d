"""Laws of the state machine under random events and a random but legal policy.

Promised capacity is always what the allocations say; no attempt starts on devices that are
still full; and the log is the database: folding it gives the same state again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.codec.event_lines import event_line, read_event
from weft.core.events.actions import Action, Adjust, Start, Stop, Wake
from weft.core.events.event import (
    Cancelled,
    Event,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    PriorityChanged,
    Reported,
    Resumed,
    Started,
    StartFailed,
    Stopped,
    Submitted,
    Suspended,
    Woken,
)
from weft.core.events.report import Report
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Batch, Demand, Job, JobId, NodeId, Sharing, Slice, Tier
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.capacity import Capacity
from weft.core.state.saved_state import load_state, save_state
from weft.core.state.state import State
from weft.core.state.table import COLUMNS
from weft.runtime.recovery.recover import wishes_of
from weft.stack.layers import EligibleJobs

CLUSTERS = ("2x2:v100", "3x4:v100", "2x2:t4+2x4:a100")
SHARES = (0.3, 0.5, 1.0, 1.0, 1.0)
OPERATIONS = (
    *("submit",) * 5,
    *("answer",) * 8,
    *("finish", "finish", "fail", "retry", "cancel", "stale", "report"),
    *("down", "up", "wake", "suspend", "suspend", "resume", "priority"),
)


COMMANDS = ("suspend", "resume", "priority")


def command(what: str, job: JobId, pick: int) -> Event:
    if what == "priority":
        return PriorityChanged(job, float(pick % 3 - 1), Tier(pick % 2))
    return Suspended(job) if what == "suspend" else Resumed(job)


@dataclass(frozen=True)
class Whim:
    """Does anything that is allowed: starts, stops, moves, adjusts, rejects, shares."""

    about = About("whim", "test", controls=Controls.SHARE | Controls.BATCH | Controls.COUNT)

    def decide(self, view: View) -> Plan:
        changes: dict[JobId, Allocation | None] = {}
        rejected: dict[JobId, str] = {}
        for row in view.rng.permutation(len(view.table)):
            job, on = view.job(row), view.allocation(row)
            dice = int(view.rng.integers(10))
            if dice == 9 and view.rng.random() < 0.2:
                rejected[job.id] = "on a whim"
            elif on is not None and dice in (0, 1, 2):
                view.free.give(on)
                changes[job.id] = self._place(view, job) if dice else None
            elif on is not None and dice == 3:
                changes[job.id] = replace(on, batch=Batch(int(view.rng.integers(1, 9))))
            elif on is not None and dice == 4:
                view.free.give(on)
                to = replace(on, sharing=Sharing(share=float(view.rng.choice(SHARES))))
                changes[job.id] = to = to if view.free.fits(to) else on
                view.free.take(to)
            elif on is None and dice < 7 and (placed := self._place(view, job)) is not None:
                changes[job.id] = placed
        wake = view.now + float(view.rng.integers(1, 50)) if view.rng.random() < 0.5 else None
        return Plan(changes, rejected, wake_at=wake)

    def _place(self, view: View, job: Job) -> Allocation | None:
        for _ in range(3 if view.cluster.kinds else 0):
            kind = view.rng.choice(view.cluster.kinds)
            devices = [(n, g) for n in view.cluster.nodes if n.kind == kind for g in range(n.gpus)]
            count = int(view.rng.integers(job.demand.min, job.demand.max + 1))
            if count > len(devices):
                continue
            chosen = view.rng.choice(len(devices), count, replace=False)
            gpus: dict[NodeId, list[int]] = {}
            for i in sorted(chosen):
                gpus.setdefault(devices[i][0].id, []).append(devices[i][1])
            slices = tuple(Slice(node, tuple(held)) for node, held in gpus.items())
            to = Allocation(slices, Sharing(share=float(view.rng.choice(SHARES))))
            if view.free.fits(to):
                view.free.take(to)
                return to
        return None


class Machine:
    """Carries actions out as slowly as the test likes, and watches the devices."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.whole = cluster
        self.log: list[str] = []
        self.actions: list[Action] = []
        self.now = 0.0
        self.jobs = 0
        self.there: dict[tuple[JobId, int], Allocation] = {}
        self.asked: dict[tuple[JobId, int], type[Start] | type[Stop]] = {}
        self.wake: float | None = None
        self.scheduler = Scheduler(EligibleJobs(Whim()), cluster, seed=seed, journal=self.write)

    def write(self, at: float, event: Event) -> None:
        self.log.append(event_line(at, event))

    def happen(self, *events: Event) -> None:
        for action in self.scheduler.step(self.now, events):
            if isinstance(action, Wake):
                self.wake = action.at
                continue
            self.actions.append(action)
            match action:
                case Start(job, on, attempt):
                    assert all(name != job.id for name, _ in self.there), f"{job.id} runs twice"
                    assert job.id not in self.scheduler.state.table.suspended
                    self.there[job.id, attempt] = on
                    self.asked[job.id, attempt] = Start
                    self.check_room(on)
                case Stop(job_id, attempt):
                    assert (job_id, attempt) in self.there
                    self.asked[job_id, attempt] = Stop
                case Adjust(job_id, attempt, to):
                    assert self.there[job_id, attempt].slices == to.slices
                    self.there[job_id, attempt] = to
                case _:
                    pass

    def check_room(self, started: Allocation) -> None:
        """Whoever is on the devices of a start, leaving or not, fits there together with it."""
        for wanted in started.slices:
            for gpu in wanted.gpus:
                claims = [
                    on.sharing.share
                    for on in self.there.values()
                    for part in on.slices
                    if part.node == wanted.node and gpu in part.gpus
                ]
                assert sum(claims) <= 1.0 + 1e-6, f"GPU {gpu} of {wanted.node} is still in use"

    def gone(self, key: tuple[JobId, int]) -> None:
        self.there.pop(key, None)
        self.asked.pop(key, None)

    def do(self, what: str, pick: int) -> None:
        alive = sorted(self.there)
        active = self.scheduler.state.table.jobs
        if what == "submit":
            demand = Demand(1 + pick % 3, min=1, max=4) if pick % 2 else Demand(1 + pick % 4)
            self.jobs += 1
            self.happen(Submitted(Job(JobId(f"j{self.jobs}"), self.now, demand)))
        elif what == "cancel" and active:
            self.happen(Cancelled(active[pick % len(active)].id))
        elif what in COMMANDS and active:
            self.happen(command(what, active[pick % len(active)].id, pick))
        elif what in ("down", "up"):
            node = self.whole.nodes[pick % len(self.whole.nodes)]
            self.happen(NodeUp(node) if what == "up" else NodeDown(node.id))
        elif what == "wake" and self.wake is not None:
            self.now = max(self.now, self.wake)
            self.happen(Woken())
        elif alive and what not in ("cancel", "wake", *COMMANDS):
            self.tell_of(what, *alive[pick % len(alive)])

    def tell_of(self, what: str, job: JobId, attempt: int) -> None:
        if what == "answer":
            asked = self.asked.pop((job, attempt), None)
            if asked is Stop:
                self.gone((job, attempt))
                self.happen(Stopped(job, attempt))
            elif asked is Start:
                self.happen(Started(job, attempt))
        elif what == "stale":
            self.happen(Started(job, attempt - 1), Stopped(job, attempt - 1))
            self.happen(Finished(job, attempt - 1), Failed(job, attempt + 7))
        elif what == "report":
            self.happen(Reported(job, attempt, Report(loss=self.now)))
        else:
            starting = self.asked.get((job, attempt)) is Start
            self.gone((job, attempt))
            if what == "finish":
                self.happen(Finished(job, attempt))
            elif what == "fail":
                self.happen(Failed(job, attempt, "died"))
            elif what == "retry" and starting:
                self.happen(StartFailed(job, attempt))
            elif what == "retry":
                self.happen(Failed(job, attempt, retry=True))
            else:
                raise AssertionError(what)


def readings(free: Capacity) -> tuple[object, ...]:
    return (
        free.idle_by_kind(),
        free.room(),
        [free.on(i) for i in range(len(free.cluster.nodes))],
        [free.with_room(kind, share) for kind in free.kinds for share in (0.3, 0.5)],
    )


def check_ledger(state: State) -> None:
    naive = Capacity(state.cluster)
    for on in state.table.allocations:
        if on is not None:
            naive.take(on)
    assert readings(state.free) == readings(naive)
    held = [0.0 if on is None else float(on.gpus) for on in state.table.allocations]
    assert state.table.held.tolist() == held


def run(text: str, seed: int, script: list[tuple[str, int, int]]) -> Machine:
    machine = Machine(parse_cluster(text), seed)
    for what, pick, later in script:
        machine.now += later
        machine.do(what, pick)
        check_ledger(machine.scheduler.state)
    return machine


scripts = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 999), st.integers(0, 20)),
    min_size=5,
    max_size=60,
)


History = tuple[str, int, list[tuple[str, int, int]]]
histories: st.SearchStrategy[History] = st.tuples(
    st.sampled_from(CLUSTERS), st.integers(0, 999), scripts
)


@examples(150)
@given(histories)
def test_promises_are_kept_and_the_log_is_the_database(history: History) -> None:
    machine = run(*history)

    fresh = State(parse_cluster(history[0]))
    actions: list[Action] = []
    for line in machine.log:
        actions += fresh.fold(*read_event(line))

    state = machine.scheduler.state
    assert actions == machine.actions
    assert fresh.table.jobs == state.table.jobs
    assert fresh.table.allocations == state.table.allocations
    for name, which in COLUMNS.items():
        assert np.array_equal(fresh.table.column(which), state.table.column(which)), name
    assert fresh.cluster == state.cluster
    assert readings(fresh.free) == readings(state.free)
    assert fresh.ended == state.ended
    assert fresh.reports == state.reports
    assert fresh.table.suspended == state.table.suspended
    loaded = load_state(save_state(state), {job.id: job for job in state.table.jobs})
    assert loaded.table.suspended == state.table.suspended
    assert loaded.releasing.held_starts() == state.releasing.held_starts()
    assert wishes_of(loaded) == wishes_of(state)
    assert (fresh.decisions, fresh.wake_at) == (state.decisions, state.wake_at)


@examples(60)
@given(histories)
def test_once_everything_is_cancelled_and_answered_nothing_is_left(history: History) -> None:
    machine = run(*history)
    state = machine.scheduler.state

    machine.happen(*(Cancelled(job.id) for job in list(state.table.jobs)))
    while machine.asked:
        machine.do("answer", sorted(machine.there).index(min(machine.asked)))

    assert len(state.table) == 0
    assert machine.there == {}
    assert state.free.room() == state.cluster.gpus
