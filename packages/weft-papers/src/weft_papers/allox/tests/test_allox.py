"""AlloX (EuroSys 2020): the matching against brute force, fairness between users, live rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cheap import check_contract

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Submitted
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.core.state.table import JobTable
from weft.perf.linear import LinearBeliefs
from weft.testing import view_of
from weft_papers.allox.assignment import MachineAssignment, line_up
from weft_papers.allox.policy import Allox, lengths_by_kind, shares, worst_off

FOUR = np.array([[10, 40], [20, 30], [30, 120], [5, 6]], dtype=float)


def order_of(lines: MachineAssignment, machine: int) -> list[int]:
    jobs = np.flatnonzero(lines.machine == machine)
    return [int(job) for job in jobs[np.argsort(-lines.place[jobs], kind="stable")]]


def brute_force(lengths: Floats, ready: Floats) -> float:
    """The least sum of completion times over all assignments; each machine shortest first."""
    jobs, machines = lengths.shape
    best = np.inf
    for where in product(range(machines), repeat=jobs):
        total = 0.0
        for machine in range(machines):
            mine = sorted(lengths[job, machine] for job in range(jobs) if where[job] == machine)
            ends = ready[machine] + np.cumsum(mine)
            total += float(ends.sum())
        best = min(best, total)
    return best


# ---- the worked examples


def test_four_jobs_on_a_gpu_and_a_cpu() -> None:
    lines = line_up(FOUR, np.zeros(2))

    assert lines.total == pytest.approx(92.0)
    assert (order_of(lines, 0), order_of(lines, 1)) == ([0, 2], [3, 1])


def test_a_busy_gpu_delays_its_line_and_changes_no_order() -> None:
    lines = line_up(FOUR, np.array([15.0, 0.0]))

    assert lines.total == pytest.approx(122.0)
    assert (order_of(lines, 0), order_of(lines, 1)) == ([0, 2], [3, 1])


def test_waits_count_in_the_total_alone() -> None:
    lengths = np.array([[1, 2], [2, 3], [4, 10]], dtype=float)

    lines = line_up(lengths, np.zeros(2), np.array([5.0, 0.0, 1.0]))

    assert lines.total == pytest.approx(15.0)
    assert (order_of(lines, 0), order_of(lines, 1)) == ([0, 2], [1])


@pytest.mark.parametrize(
    ("alpha", "entering"), [(0.34, {"b", "c"}), (0.33, {"b"}), (1.0, {*"abc"})]
)
def test_the_users_who_hold_least_take_part(alpha: float, entering: set[str]) -> None:
    held = {"a": 0.30, "b": 0.05, "c": 0.20}

    assert worst_off(held, ["a", "b", "c"], alpha) == entering


def test_a_job_on_its_slower_kind_counts_less() -> None:
    fast, slow = (
        Job(JobId("fast"), demand=Demand(1, kinds=("v100",)), user="one"),
        Job(JobId("slow"), demand=Demand(1, kinds=("k80",)), user="other"),
    )
    view = view_of("1x4:v100+1x8:k80", fast, slow)
    plan = Allox().decide(view)
    ran = view.after(plan)
    assert set(ran) == {"fast", "slow"}
    lengths = np.array([[10.0, 40.0], [10.0, 40.0]])

    state = State(view.cluster)
    for job in (fast, slow):
        state.fold(0.0, Submitted(job))
    state.fold(0.0, Decided(1, dict(ran)))
    seen = View(0.0, state.table, view.cluster, state.free)

    assert shares(seen, lengths) == pytest.approx({"one": 0.25, "other": 0.0625})


# ---- invariants


@given(
    st.integers(1, 5).flatmap(
        lambda jobs: st.tuples(
            st.lists(
                st.lists(st.integers(1, 40), min_size=2, max_size=2), min_size=jobs, max_size=jobs
            ),
            st.lists(st.integers(0, 30), min_size=2, max_size=2),
        )
    )
)
def test_the_matching_is_as_good_as_the_best_of_all_schedules(
    drawn: tuple[list[list[int]], list[int]],
) -> None:
    lengths, ready = np.array(drawn[0], dtype=float), np.array(drawn[1], dtype=float)

    lines = line_up(lengths, ready)

    assert lines.total == pytest.approx(brute_force(lengths, ready))
    for machine in range(2):
        there = [lengths[job, machine] for job in order_of(lines, machine)]
        assert there == sorted(there)
    assert line_up(2.0 * lengths, np.zeros(2)).total == pytest.approx(
        2.0 * line_up(lengths, np.zeros(2)).total
    )


def test_the_total_does_not_depend_on_how_jobs_and_machines_are_numbered() -> None:
    totals = {
        round(line_up(FOUR[list(rows)][:, list(columns)], np.zeros(2)).total, 9)
        for rows in permutations(range(4))
        for columns in permutations(range(2))
    }

    assert totals == {92.0}


def test_a_job_that_can_run_nowhere_else_is_not_lined_up_there() -> None:
    lines = line_up(np.array([[np.inf, 9.0], [5.0, np.inf]]), np.zeros(2))

    assert lines.machine.tolist() == [1, 0]


@pytest.mark.parametrize("policy", [Allox(alpha=0.3), Allox(preempt=True), Allox(cap=3)])
def test_allox_keeps_the_contract_of_policies(policy: Allox) -> None:
    check_contract(policy)


def test_an_alpha_that_is_no_part_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="alpha=0"):
        Allox(alpha=0.0)


def test_the_only_job_starts_at_once() -> None:
    view = view_of("1x1:v100+1x1:k80", ("only", 1, 60.0))

    assert set(view.after(Allox().decide(view))) == {"only"}


def test_lengths_are_infinite_on_kinds_a_job_does_not_accept() -> None:
    job = Job(JobId("a"), demand=Demand(1, kinds=("k80",)))

    lengths = lengths_by_kind(view_of("1x1:v100+1x1:k80", job))

    assert np.isinf(lengths[0]).tolist() == [True, False]


def test_a_length_is_that_on_the_kind_that_suits_a_job_best() -> None:
    view = view_of("1x1:v100+1x1:k80", ("a", 1, 100.0))
    known = replace(view.knowledge, beliefs=TenTimes(2.0))

    assert lengths_by_kind(replace(view, knowledge=known)).tolist() == [[100.0, 1000.0]]


def test_a_job_waits_for_a_fast_gpu_where_the_slow_one_takes_ten_times_as_long() -> None:
    # 100 s on the v100 that is busy for 100 s more, or 1,000 s on the idle k80: nobody is forced
    # to start; where the v100 is busy for 2,000 s the k80 is the sooner.
    started = {}
    for busy_s in (100.0, 2000.0):
        first = Job(JobId("first"), demand=Demand(1, kinds=("v100",)), hints={"duration_s": busy_s})
        next_one = Job(JobId("next"), hints={"duration_s": 100.0})
        view = beside("1x1:v100+1x1:k80", first, next_one, beliefs=TenTimes())
        started[busy_s] = "next" in view.after(Allox().decide(view))

    assert started == {100.0: False, 2000.0: True}


def beside(cluster: str, first: Job, *others: Job, beliefs: LinearBeliefs | None = None) -> View:
    """The others wait while the first runs."""
    view = view_of(cluster, first, *others)
    alone = view_of(cluster, first)
    state = State(view.cluster)
    for job in (first, *others):
        state.fold(0.0, Submitted(job))
    state.fold(0.0, Decided(1, dict(alone.after(Allox().decide(alone)))))
    known = replace(view.knowledge, beliefs=beliefs)
    return View(0.0, state.table, view.cluster, state.free, known)


def of_user(user: str, seconds: float, gpus: int = 1) -> Job:
    return Job(JobId(f"{user}-{seconds:g}"), 0.0, Demand(gpus), user, hints={"duration_s": seconds})


@pytest.mark.parametrize(
    "policy", ["allox:alpha=0.3", "compose:order=allox,admit=worst-off:alpha=0.3"]
)
def test_the_part_of_users_grows_only_until_somebody_can_start(policy: str) -> None:
    # The gang of the first user does not fit; the third holds a GPU, and has the shortest job.
    view = beside(
        "1x2:v100",
        of_user("third", 9000.0),
        of_user("first", 10.0, gpus=2),
        of_user("second", 500.0),
        of_user("third", 100.0),
    )

    started = set(view.after(build("policy", policy).decide(view))) - {"third-9000"}

    assert started == {"second-500"}


def test_as_many_take_part_as_twice_the_idle_gpus_whatever_the_cap() -> None:
    jobs = [of_user("u", seconds) for seconds in (50.0, 40.0, 30.0, 20.0, 10.0)]
    views = [view_of(cluster, *jobs) for cluster in ("1x1:v100", "1x4:v100")]
    everybody = [
        Allox()._candidates(view, view.waiting(), lengths_by_kind(view), 1.0) for view in views
    ]
    few = [
        Allox(cap=1)._candidates(view, view.waiting(), lengths_by_kind(view), 1.0) for view in views
    ]

    assert [len(rows) for rows in everybody] == [5, 5]
    assert [rows.tolist() for rows in few] == [[3, 4], [0, 1, 2, 3, 4]]


def test_who_runs_stays_where_a_move_costs_half_a_second() -> None:
    only = Job(JobId("only"), demand=Demand(1), hints={"duration_s": 100.0})
    view = beside("1x1:v100+1x1:k80", only, beliefs=Restarts(0.5))
    before = view.held()

    assert view.after(Allox(preempt=True).decide(view)) == before


class Restarts(LinearBeliefs):
    """Restarts take so many seconds, and all kinds are as fast."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def restart_s(self, table: JobTable) -> Floats:
        return np.full(len(table), self._seconds)


class TenTimes(LinearBeliefs):
    """Every job is ten times as fast on a v100, there with so many steps a second."""

    def __init__(self, fastest: float = 1.0) -> None:
        super().__init__()
        self._fastest = fastest

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        fast = [self._fastest * (1.0 if kind == "v100" else 0.1) for kind in kinds]
        return np.tile(fast, (len(table), 1))
