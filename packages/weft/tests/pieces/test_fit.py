"""Who fits, by counting: the fast scan agrees with the obvious one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.events.event import Decided, Submitted
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.pieces.fit import FEW, fit, fit_first
from weft.testing import cluster_of, view_of


def naive(need: list[float], room: float) -> list[bool]:
    chosen = []
    for amount in need:
        fits = amount <= room + 1e-9
        room -= amount if fits else 0.0
        chosen.append(fits)
    return chosen


@examples(300)
@given(
    st.lists(st.sampled_from((0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 16.0)), max_size=40),
    st.integers(0, 160).map(lambda quarters: quarters / 4),
)
def test_the_scan_agrees_with_taking_one_after_the_other(need: list[float], room: float) -> None:
    assert fit_first(np.array(need), room).tolist() == naive(need, room)


@examples(100)
@given(
    st.lists(st.sampled_from((0.1, 0.25, 0.3, 1.0, 2.0, 3.0, 8.0)), max_size=40),
    st.integers(0, 400).map(lambda tenths: tenths / 10),
)
def test_many_are_scanned_as_few_are(need: list[float], room: float) -> None:
    too_large = [room + 1.0] * FEW  # they change nothing but the way of counting
    many = fit_first(np.array([*need, *too_large]), room).tolist()
    assert many == [*fit_first(np.array(need), room).tolist(), *[False] * FEW]


@pytest.mark.parametrize(
    ("need", "room", "chosen"),
    [
        ([], 4.0, []),
        ([1.0], 0.0, [False]),
        ([4.0, 4.0, 4.0], 8.0, [True, True, False]),
        ([8.0, 2.0, 4.0, 2.0], 4.0, [False, True, False, True]),
        ([2.0, 8.0, 2.0, 1.0, 1.0], 5.0, [True, False, True, True, False]),
        ([0.1] * 10 + [0.1], 1.0, [True] * 10 + [False]),
    ],
)
def test_what_does_not_fit_is_passed_over(
    need: list[float], room: float, chosen: list[bool]
) -> None:
    assert fit_first(np.array(need), room).tolist() == chosen


def test_a_running_job_competes_with_what_it_holds() -> None:
    cluster = cluster_of(4)
    state = State(cluster)
    for name, gpus in (("runs", 4), ("waits", 2), ("small", 2)):
        state.fold(0.0, Submitted(Job(JobId(name), demand=Demand(gpus))))
    state.fold(0.0, Decided(1, {JobId("runs"): Allocation((state.free.slice(0, 4),))}))
    view = View(0.0, state.table, cluster, state.free)

    assert fit(view, np.array([0, 1, 2])).tolist() == [True, False, False]
    assert fit(view, np.array([1, 0, 2])).tolist() == [True, False, True]


def test_everybody_fits_when_there_is_room_for_all() -> None:
    view = view_of(8, ("a", 4, 1.0), ("b", 4, 1.0))

    assert fit(view, np.array([1, 0])).tolist() == [True, True]


def test_kinds_are_counted_apart() -> None:
    view = view_of(
        "1x4:t4+1x4:a100",
        Job(JobId("a"), demand=Demand(4, kinds=("t4",))),
        Job(JobId("b"), demand=Demand(4, kinds=("t4",))),
        Job(JobId("c"), demand=Demand(4)),
        Job(JobId("d"), demand=Demand(1)),
    )

    assert fit(view, np.arange(4)).tolist() == [True, False, True, False]


def test_no_gang_is_counted_over_two_kinds() -> None:
    view = view_of("1x4:t4+1x4:a100", ("wide", 6, 1.0), ("slim", 4, 1.0))

    assert fit(view, np.arange(2)).tolist() == [False, True]


def test_a_running_job_is_counted_on_its_own_kind() -> None:
    cluster = cluster_of("1x4:t4+1x4:a100")
    state = State(cluster)
    for name in ("runs", "other"):
        state.fold(0.0, Submitted(Job(JobId(name), demand=Demand(4))))
    state.fold(0.0, Decided(1, {JobId("runs"): Allocation((state.free.slice(1, 4),))}))
    state.fold(0.0, Submitted(Job(JobId("late"), demand=Demand(4, kinds=("a100",)))))
    view = View(0.0, state.table, cluster, state.free)

    assert fit(view, np.array([2, 0, 1])).tolist() == [True, False, True]
