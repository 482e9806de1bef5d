"""The next in line is started before its turn where its memory fits, and sleeps until then."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from tests.strangers import World

from weft.core.asleep.ahead import find_next
from weft.core.asleep.rules import StopRules
from weft.core.events.actions import Resume, Start, Stop
from weft.core.events.event import (
    Awoke,
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    Reported,
    Slept,
    StartedAhead,
    Submitted,
)
from weft.core.events.report import Report
from weft.core.model.job import EXCLUSIVE, After, JobId, Stage
from weft.core.state.cells import TableColumns
from weft.core.stops import Rung
from weft.runtime.loop.admit import blame_neighbours
from weft.runtime.records.ledger import Ledger

RULES = StopRules(frozenset({Rung.FREEZE}))
NEXT = JobId("next")


class Line(World):
    """One H200, a program that was seen to need 30 GB, one job that runs and others that wait."""

    def __init__(self, cluster: str = "1x1:h200", gb: float = 30.0) -> None:
        super().__init__(cluster, "fifo")
        self.submit("known", script="a.py", preemptible=True)
        self.report("known", gb)
        self.observe("known", gb)
        self.finish("known")
        for name in ("runs", "next", "last"):
            self.submit(name, script="a.py", preemptible=True, after=After())
        self.tell(Reported(JobId("runs"), 1, Report(mem_gb=gb, steps=9.0)))

    def find(self) -> StartedAhead | None:
        return find_next(self.scheduler.state, self.scheduler.knowledge, RULES, self.now)

    def start_ahead(self) -> StartedAhead:
        ahead = self.find()
        assert ahead is not None
        (start,) = self.scheduler.step(self.now, [ahead])
        assert isinstance(start, Start)
        assert (start.job.id, start.on.sharing.gpu_mem_gb) == (NEXT, None)
        return ahead

    def stage(self, name: JobId = NEXT) -> float:
        table = self.scheduler.state.table
        return table.get(table.row(name), TableColumns.STAGE)


def test_the_first_in_line_is_started_beside_who_runs() -> None:
    line = Line()

    ahead = line.start_ahead()

    assert (ahead.job, ahead.attempt) == (NEXT, 1)
    assert ahead.on.devices == line.held()[0].devices
    assert line.shares() == {"runs": 1.0}
    assert line.find() is None  # one at a time


def test_whom_rules_keep_from_every_device_is_passed_over() -> None:
    line = Line()
    state, knowledge = line.scheduler.state, line.scheduler.knowledge

    ahead = find_next(state, knowledge, RULES, line.now, lambda job, *_: job.id != NEXT)
    nobody = find_next(state, knowledge, RULES, line.now, lambda *_: False)

    assert ahead is not None
    assert (ahead.job, nobody) == ("last", None)


def test_it_goes_on_at_once_when_its_turn_comes() -> None:
    line = Line()
    line.start_ahead()
    line.scheduler.step(line.now, [Slept(NEXT, 1, Rung.FREEZE)])
    assert line.find() is None  # one for a device

    actions = line.scheduler.step(line.now + 60.0, [Finished(JobId("runs"), 1)])

    (resume,) = (action for action in actions if isinstance(action, Resume))
    assert (resume.job.id, resume.attempt) == (NEXT, 1)
    line.scheduler.step(line.now + 60.1, [Awoke(NEXT, 1)])
    assert line.stage() == Stage.RUNNING
    # It is charged for its turn, not for what it did before.
    view = line.scheduler.view(line.now + 70.1)
    assert view.ran()[view.table.row(NEXT)] == pytest.approx(10.0)


def test_who_is_wanted_before_it_sleeps_is_woken_once_it_does() -> None:
    line = Line()
    line.start_ahead()

    early = line.scheduler.step(line.now + 1.0, [Finished(JobId("runs"), 1)])
    later = line.scheduler.step(line.now + 2.0, [Slept(NEXT, 1, Rung.FREEZE)])

    assert not [action for action in early if isinstance(action, (Resume, Start))]
    assert [action.job.id for action in later if isinstance(action, Resume)] == [NEXT]


def test_nobody_is_started_where_memory_is_short_or_not_known() -> None:
    assert Line(gb=100.0).find() is None
    unknown = World(policy="fifo")
    for name in ("runs", "next"):
        unknown.submit(name, preemptible=True)
    unknown.report("runs", 10.0)
    state, knowledge = unknown.scheduler.state, unknown.scheduler.knowledge
    assert find_next(state, knowledge, RULES, unknown.now) is None


def test_nobody_unknown_is_started_where_memory_has_no_bound() -> None:
    # A CPU slot has no device memory to run out of: what nobody knows must not pass for fitting.
    unknown = World("1x1:cpu", "fifo")
    for name in ("runs", "next"):
        unknown.submit(name, script="a.py", preemptible=True, after=After())
    state, knowledge = unknown.scheduler.state, unknown.scheduler.knowledge
    assert state.cluster.nodes[0].device_gb == inf
    assert find_next(state, knowledge, RULES, unknown.now) is None


def test_nobody_is_started_beside_an_idle_device_or_without_freezing() -> None:
    assert Line("1x3:h200").find() is None
    line = Line()
    none = StopRules(frozenset({Rung.SUSPEND}))
    assert find_next(line.scheduler.state, line.scheduler.knowledge, none, line.now) is None


def test_a_cancelled_one_is_ended() -> None:
    line = Line()
    line.start_ahead()

    actions = line.scheduler.step(line.now + 1.0, [Cancelled(NEXT)])

    assert Stop(NEXT, 1) in actions
    assert not line.scheduler.state.asleep


def test_one_that_fails_ahead_waits_again_and_is_started_in_its_turn() -> None:
    line = Line()
    line.start_ahead()

    line.scheduler.step(line.now + 1.0, [Failed(NEXT, 1, "it broke", retry=True)])
    ahead = line.find()
    line.finish("runs")

    assert ahead is None or ahead.job != NEXT  # it is not tried ahead again
    assert line.shares() == {"next": 1.0}
    assert line.attempt("next") == 2


def test_nobody_is_started_beside_one_that_must_be_alone() -> None:
    line = Line()
    runs = JobId("runs")
    line.scheduler.step(
        line.now, [Failed(runs, 1, "out of memory", retry=True, lost=True, out_of_memory=True)]
    )

    assert line.find() is None


def test_who_runs_out_of_memory_beside_one_that_was_started_ahead_is_excused() -> None:
    line = Line()
    runs, state = JobId("runs"), line.scheduler.state
    failed = Failed(runs, 1, "CUDA out of memory", out_of_memory=True)
    before = blame_neighbours(failed, state, state.table.row(runs))

    line.start_ahead()
    after = [
        blame_neighbours(replace(failed, job=job), state, state.table.row(job))
        for job in (runs, NEXT)
    ]

    assert isinstance(before, Failed)
    assert not before.lost
    assert all(isinstance(event, Failed) and event.lost for event in after)


def test_its_record_has_no_gpu_time_and_no_start_before_its_turn() -> None:
    line, ledger = Line(), Ledger()
    job = line.scheduler.state.table.jobs[line.scheduler.state.table.row(NEXT)]
    ahead = line.start_ahead()
    on = replace(ahead.on, sharing=EXCLUSIVE)
    story: list[tuple[float, Event]] = [
        (0.0, Submitted(job)),
        (10.0, ahead),
        (20.0, Slept(NEXT, 1, Rung.FREEZE)),
        (60.0, Decided(1, {NEXT: on})),
    ]
    for at, event in story:
        ledger.fold(at, event)
    waits = ledger.jobs[NEXT]
    ledger.fold(61.0, Awoke(NEXT, 1))
    runs = ledger.jobs[NEXT]

    assert (waits.started, waits.running, waits.gpu_s.at(61.0)) == (None, None, 0.0)
    assert (runs.started, runs.running, runs.restarts) == (61.0, 1, 0)
    assert runs.gpu_s.at(71.0) == 10.0
