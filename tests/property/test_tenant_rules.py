"""Rules of tenants in all combinations keep what they promise.

A limit is never exceeded, what is owned comes back, and nothing idles that somebody may use.
"""

from __future__ import annotations

import pytest
from tests.scenarios.rules_play import draw, play
from tests.seeds import seeds

EACH = 20


@pytest.mark.parametrize("first", seeds(80)[::EACH])
def test_every_combination_keeps_its_promises(first: int) -> None:
    problems = [play(draw(seed)) for seed in range(first, first + EACH)]

    assert [problem for problem in problems if problem is not None] == []


@pytest.mark.parametrize("seed", [50587, 50614])
def test_combinations_that_broke_a_promise_keep_it(seed: int) -> None:
    """Taken back by who may not have all idle kinds; and from who was lent more just then."""
    assert play(draw(seed)) is None


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(2080)[80::100])
def test_thousands_of_combinations_keep_their_promises(first: int) -> None:
    problems = [play(draw(seed)) for seed in range(first, first + 100)]

    assert [problem for problem in problems if problem is not None] == []
