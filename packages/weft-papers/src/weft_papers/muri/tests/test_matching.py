"""Matching by type gives what matching thing by thing would."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.state.cells import Floats
from weft_papers.muri import matching
from weft_papers.muri.matching import match_types


def brute(counts: list[int], weight: Floats) -> float:
    @cache
    def best(left: tuple[int, ...]) -> float:
        first = next((a for a, n in enumerate(left) if n), None)
        if first is None:
            return 0.0
        rest = [n - (a == first) for a, n in enumerate(left)]
        matched = best(tuple(rest))
        for b, n in enumerate(rest):
            if n and weight[first, b] > 0.0:
                without = tuple(m - (a == b) for a, m in enumerate(rest))
                matched = max(matched, float(weight[first, b]) + best(without))
        return matched

    return best(tuple(counts))


@st.composite
def types(draw: st.DrawFn) -> tuple[list[int], Floats]:
    n = draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    cells = draw(st.lists(st.integers(0, 6), min_size=n * n, max_size=n * n))
    square = np.array(cells, dtype=float).reshape(n, n)
    return counts, np.triu(square) + np.triu(square, 1).T


@given(types())
@examples(60)
def test_nothing_weighs_more(case: tuple[list[int], Floats]) -> None:
    counts, weight = case

    pairs = match_types(counts, weight)

    used = [0] * len(counts)
    for a, b, count in pairs:
        used[a] += count
        used[b] += count
    assert all(u <= n for u, n in zip(used, counts, strict=True))
    assert sum(count * weight[a, b] for a, b, count in pairs) == brute(counts, weight)


def test_an_odd_ring_of_types_is_no_trouble() -> None:
    ring = np.zeros((3, 3))
    for a, b in ((0, 1), (1, 2), (0, 2)):
        ring[a, b] = ring[b, a] = 1.0

    assert sum(count for _, _, count in match_types([1, 1, 1], ring)) == 1
    assert sum(count for _, _, count in match_types([3, 3, 3], ring)) == 4


def test_many_types_are_matched_as_well_as_few() -> None:
    rng = np.random.default_rng(0)
    counts = [int(n) for n in rng.integers(1, 6, matching.FEW)]
    square = rng.random((matching.FEW, matching.FEW))
    weight = square + square.T
    few = match_types(counts, weight)
    padded = np.zeros((matching.FEW + 1, matching.FEW + 1))
    padded[:-1, :-1] = weight

    many = match_types([*counts, 1], padded)

    worth = [sum(n * weight[a, b] for a, b, n in pairs) for pairs in (few, many)]
    assert np.isclose(*worth)


def test_who_changes_an_answer_does_not_change_the_next() -> None:
    asked = [3, 2], np.array([[0.5, 1.0], [0.0, 0.25]])
    first = match_types(*asked)
    expected = list(first)
    first.clear()

    assert match_types(*asked) == expected == [(0, 1, 2)]
