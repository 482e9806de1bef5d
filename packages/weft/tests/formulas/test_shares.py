"""Shares, entitlements, envy and Jain's index: small cases by hand, laws for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.formulas.fairness.shares import (
    Shares,
    Stretches,
    divide_time,
    envy_of,
    fill_windows,
    jain_index,
    received_by_entitlement,
    shortfall,
    window_edges,
)

NAN = np.nan


def stretches(*rows: tuple[int, float, float, float]) -> Stretches:
    columns = np.array(rows, dtype=float).reshape(-1, 4).T
    return Stretches(columns[0].astype(np.intp), *columns[1:])


def two_users(weights: dict[str, float] | None = None) -> Shares:
    """On 4 GPUs for 200 s: ada's job wants 4 all the time, bob's 4 in the second half.

    ada holds 4, then 3; bob holds 1.
    """
    return divide_time(
        ["ada", "bob"],
        np.array([0.0, 100.0]),
        np.array([200.0, 200.0]),
        np.array([4.0, 4.0]),
        stretches((0, 0.0, 100.0, 4.0), (0, 100.0, 200.0, 3.0), (1, 100.0, 200.0, 1.0)),
        4.0,
        np.array([0.0, 100.0, 200.0]),
        weights,
    )


def test_users_want_receive_and_are_entitled_to_gpu_seconds() -> None:
    shares = two_users()

    assert shares.users == ("ada", "bob")
    assert shares.wanted.tolist() == [[400.0, 400.0], [0.0, 400.0]]
    assert shares.received.tolist() == [[400.0, 300.0], [0.0, 100.0]]
    assert shares.entitled.tolist() == [[400.0, 200.0], [0.0, 200.0]]


def test_a_weight_moves_the_entitlement() -> None:
    assert two_users({"ada": 3.0}).entitled.tolist() == [[400.0, 300.0], [0.0, 100.0]]


def test_a_job_that_never_ended_wants_until_the_end() -> None:
    shares = divide_time(
        ["ada"],
        np.array([50.0]),
        np.array([NAN]),
        np.array([2.0]),
        stretches(),
        4.0,
        np.array([0.0, 100.0]),
    )

    assert shares.wanted.tolist() == [[100.0]]
    assert shares.received.tolist() == [[0.0]]


def test_what_users_received_of_their_entitlement() -> None:
    shares = two_users()

    assert received_by_entitlement(shares).tolist() == pytest.approx([700 / 600, 0.5])
    assert shortfall(shares) == pytest.approx(100 / 800)


def test_bob_envies_ada_by_what_he_lacks_in_her_place() -> None:
    assert envy_of(two_users()).tolist() == pytest.approx([0.0, 1 - 100 / 300])
    # Three of ada's GPUs are one of bob's where she weighs three times as much.
    assert envy_of(two_users({"ada": 3.0})).tolist() == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0, 1.0, 1.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([], 1.0), ([0.0], 1.0)],
)
def test_jain_is_one_of_equals_and_least_where_one_has_all(
    values: list[float], expected: float
) -> None:
    assert jain_index(np.array(values)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("room", "weights", "demands", "expected"),
    [
        (8.0, [1, 1, 1], [4, 4, 2], [3, 3, 2]),
        (24.0, [1, 2, 1], [4, 20, 20], [4, 40 / 3, 20 / 3]),
        (10.0, [1, 1], [3, 4], [3, 4]),
        (0.0, [1, 1], [3, 4], [0, 0]),
    ],
)
def test_windows_are_filled_by_weighted_max_min(
    room: float, weights: list[float], demands: list[float], expected: list[float]
) -> None:
    given = fill_windows(
        np.array([room]), np.array(weights, dtype=float), np.array([demands], dtype=float).T
    )

    assert given[:, 0].tolist() == pytest.approx(expected)


@given(
    st.floats(0.0, 100.0),
    st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.0, 50.0)), min_size=1, max_size=8),
)
def test_max_min_wastes_nothing_and_favours_nobody(
    room: float, users: list[tuple[float, float]]
) -> None:
    weights, demands = np.array(users).T
    got = fill_windows(np.array([room]), weights, demands[:, None])[:, 0]

    assert (got <= demands + 1e-9).all()
    assert got.sum() == pytest.approx(min(room, demands.sum()), abs=1e-6)
    unmet = got < demands - 1e-6
    if unmet.any():  # nobody has more for its weight than one that wants more
        assert (got / weights).max() <= (got / weights)[unmet].min() + 1e-6


@pytest.mark.parametrize(("end", "most"), [(7200.0, 10), (7300.0, 10), (1e6, 7), (0.0, 5)])
def test_edges_cover_the_span_in_few_enough_windows(end: float, most: int) -> None:
    edges = window_edges(0.0, end, 3600.0, most)

    assert edges[0] == 0.0
    assert edges[-1] == pytest.approx(end, abs=1e-6)
    assert (np.diff(edges) > 0.0).all()
    assert len(edges) <= most + 1
