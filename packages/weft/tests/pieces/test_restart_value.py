"""Values that count restarts, weights by rank, and how long what is given lasts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.state.cells import Floats
from weft.pieces.size.change_seconds import HoldTimes, key_of
from weft.policies.weft.policy import flatten_large, rank_weights, share_ranks
from weft.policies.weft.values import ChangePrices, restart_values
from weft.testing import view_of

SPEED = np.array([[0.5, 1.0]])
W = np.array([1.0])


def values(held: int, left: float, cost: float, change: float | None = None) -> Floats:
    each = np.full((1, 2), cost)
    other = each if change is None else np.full((1, 2), change)
    changes = ChangePrices(
        each, other, np.zeros((1, 2)), np.zeros((1, 2)), np.full((1, 2), 3600.0), 600.0
    )
    worth: Floats = restart_values(SPEED, np.array([float(held)]), W, np.array([left]), changes)[0]
    return worth


def test_without_costs_a_size_is_worth_its_speed() -> None:
    assert values(0, 1000.0, 0.0) == pytest.approx([0.5, 1.0])


def test_a_job_that_is_nearly_done_keeps_what_it_has() -> None:
    stay, rise = values(0, 30.0, 60.0)

    assert stay > rise


def test_a_job_with_much_to_do_rises() -> None:
    stay, rise = values(0, 3000.0, 60.0)

    assert rise > stay


def test_a_cheap_change_is_taken_where_a_restart_is_not() -> None:
    stay, rise = values(0, 100.0, 90.0, change=1.0)

    assert rise > stay


def test_a_running_job_is_worth_more_than_one_that_would_have_to_start() -> None:
    assert values(1, 1000.0, 60.0)[1] > values(-1, 1000.0, 60.0)[1]


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=30, unique=True))
def test_who_has_less_left_weighs_more(left: list[float]) -> None:
    seconds = np.array(left)

    weights = rank_weights(seconds)

    assert (np.diff(weights[np.argsort(-seconds)]) > 0.0).all()
    assert weights.min() == pytest.approx(1.0)
    flat = flatten_large(weights, seconds, 3600.0)
    assert flat.sum() == pytest.approx(weights.sum())
    assert len(set(flat[seconds > 3600.0])) <= 1


def test_kinds_that_jobs_are_pushed_off_are_not_expected_to_last() -> None:
    view = view_of(8, ("a", 1, 60.0))
    kind, model = view.cluster.kinds[0], view.job(0).model

    before = HoldTimes().expect(view, 3600.0)[0, 0]
    after = HoldTimes().lose([key_of(model, kind)] * 3).expect(view, 3600.0)[0, 0]

    assert (before, after) == (3600.0, 900.0)


def test_who_is_guessed_to_have_as_much_left_has_the_same_weight() -> None:
    left = np.array([100.0, 50.0, 100.0, 100.0])
    ranks = rank_weights(left)

    weights = share_ranks(ranks, left, np.array([True, True, True, False]))

    assert weights[0] == weights[2] == (ranks[0] + ranks[2]) / 2.0
    assert weights[[1, 3]].tolist() == ranks[[1, 3]].tolist()
