"""Machines that come and go: lent while not needed, given back at once, the empty ones first."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest
from tests.refused import refused

from weft.app.simulate.setup import read_loans
from weft.core.errors import InvalidConfig
from weft.core.events.event import Event, LoanRecalled, NodeDown, NodeUp
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.scheduler import Scheduler
from weft.perf.replay import OnLoan, Replay
from weft.policies.fifo import Fifo
from weft.sim.driver import Simulation
from weft.sim.loans import DailyDemand, Loans, RecordedDemand
from weft.sim.physics import Physics

OWN = parse_cluster("1x2:v100")
LENT = read_loans("3x2:v100,headroom=0").nodes


def jobs(*lengths: float, gpus: int = 2) -> Trace:
    return Trace(
        "drawn",
        tuple((Job(JobId(f"j{i}"), 0.0, Demand(gpus)), Truth(s)) for i, s in enumerate(lengths)),
    )


def drive(
    trace: Trace, loans: Loans, checkpoint_s: float = 0.0
) -> tuple[Simulation, Physics, list[tuple[float, Event]]]:
    nodes = frozenset(node.id for node in loans.nodes)
    physics = Physics(trace, OnLoan(Replay(0.0), nodes, loans.speed), checkpoint_s=checkpoint_s)
    log: list[tuple[float, Event]] = []
    scheduler = Scheduler(
        Fifo(backfill=True), OWN, knowledge=Knowledge(), journal=lambda at, e: log.append((at, e))
    )
    driver = Simulation(scheduler, physics, OWN, loans=loans)
    driver.run()
    return driver, physics, log


def test_a_rhythm_needs_least_at_first_and_most_half_a_day_later() -> None:
    needed = dict(
        takewhile(lambda point: point[0] <= 86_400.0, DailyDemand(noise=0.0).over_time(100, seed=0))
    )

    assert needed[0.0] == 30
    assert needed[43_200.0] == 95
    assert needed[86_400.0] == 30
    assert min(needed.values()) == 30


def test_headroom_is_never_lent() -> None:
    loans = Loans(LENT, RecordedDemand(((0.0, 0), (10.0, 2))), headroom=0.1)

    assert list(loans.lent(seed=0)) == [(0.0, 2), (10.0, 0)]


def test_a_rhythm_that_never_changes_ends_no_simulation_in_a_loop() -> None:
    loans = Loans(LENT, DailyDemand(low=1.0, high=1.0, noise=0.0))

    driver, physics, _ = drive(jobs(100.0, 100.0), loans)

    assert physics.ended_at.tolist() == [100.0, 200.0]
    assert driver.counts.loans is not None
    assert driver.counts.loans.gpu_s == 0.0


def test_the_owner_has_what_it_needs_in_the_same_instant() -> None:
    loans = Loans(LENT, RecordedDemand(((0.0, 0), (50.0, 2), (60.0, 1), (90.0, 3))), headroom=0.0)

    _, physics, log = drive(jobs(*[100.0] * 8), loans)

    here = dict.fromkeys((0.0, 50.0, 60.0, 90.0), 0)
    up = 0
    for at, event in log:
        up += isinstance(event, NodeUp)
        up -= isinstance(event, NodeDown)
        if at in here:
            here[at] = up
    assert here == {0.0: 3, 50.0: 1, 60.0: 2, 90.0: 0}
    assert physics.lost_s.sum() == 0.0
    assert (physics.ended_at > 0.0).all()


def test_machines_without_jobs_go_back_first() -> None:
    loans = Loans(LENT, RecordedDemand(((0.0, 1), (50.0, 2))), headroom=0.0)

    driver, _, log = drive(jobs(100.0, 100.0), loans)

    went = [event.node for _, event in log if isinstance(event, NodeDown)]
    counts = driver.counts.loans
    assert counts is not None
    assert went == ["loan-1"]
    assert (counts.recalls, counts.returned, counts.stopped) == (1, 1, 0)
    assert counts.gpu_s == 2 * 100.0 + 2 * 50.0


def test_a_job_on_a_machine_that_goes_back_waits_and_loses_no_work() -> None:
    loans = Loans(LENT[:1], RecordedDemand(((0.0, 0), (50.0, 1))), headroom=0.0)

    driver, physics, log = drive(jobs(100.0, 100.0), loans)

    counts = driver.counts.loans
    assert counts is not None
    assert counts.stopped == 1
    assert [e.count for _, e in log if isinstance(e, LoanRecalled)] == [1]
    assert physics.ended_at.tolist() == [100.0, 150.0]


def test_a_slower_machine_takes_longer() -> None:
    loans = Loans(LENT[:1], RecordedDemand(((0.0, 0),)), headroom=0.0, speed=0.5)

    _, physics, _ = drive(jobs(100.0, 100.0), loans)

    assert physics.ended_at.tolist() == [100.0, 200.0]


def test_a_trace_of_what_is_needed_is_read(tmp_path: Path) -> None:
    (tmp_path / "needed.csv").write_text("time_s,needed\n0,3\n600,1\n")

    loans = read_loans(f"4x8:t4,trace={tmp_path / 'needed.csv'},headroom=0,speed=0.33")

    assert loans.needed == RecordedDemand(((0.0, 3), (600.0, 1)))
    assert [node.id for node in loans.nodes] == ["loan-0", "loan-1", "loan-2", "loan-3"]
    assert all(node.loaned and node.kind == "t4" for node in loans.nodes)
    assert loans.speed == 0.33


@refused(
    InvalidConfig,
    {
        "8x8:v100,low": "'low' is not KEY=VALUE",
        "8x8:v100,lwo=0.1": "lwo",
        "8x8:v100,low=0.9,high=0.1": "low=0.9, high=0.1",
        "8x8:v100,speed=0": "speed=0",
        "8by8": "8by8",
        "8x8:v100,trace=/nowhere.csv": "cannot read the loan trace",
        "8x8:v100,trace=/nowhere.csv,low=0.1": "low has no effect beside a trace",
    },
)
def test_a_loan_that_means_nothing_is_refused(text: str) -> None:
    read_loans(text)


def test_a_broken_line_of_a_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "needed.csv").write_text("time_s,needed\n0,3\n600,many\n")

    with pytest.raises(InvalidConfig, match=r"needed.csv, line 3"):
        read_loans(f"4x8:t4,trace={tmp_path / 'needed.csv'}")
