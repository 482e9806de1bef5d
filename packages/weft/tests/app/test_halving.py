"""Which trials of a search fall behind, worked by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from math import nan

from weft.app.search import halving
from weft.app.search.halving import Behind, Curve, best_of, rungs, values_at
from weft.core.model.search import SearchKind, SearchTerms

ASHA = SearchTerms(SearchKind.ASHA, "loss", eta=2)


def find_behind(curves: Mapping[str, Curve], search: SearchTerms) -> dict[str, Behind]:
    """Those behind, of trials with these curves."""
    steps = rungs(search)
    reached = {trial: values_at(curve, steps) for trial, curve in curves.items()}
    return halving.find_behind(reached, search)


def flat(*values: float, steps: int = 1) -> dict[str, list[tuple[float, float]]]:
    """Trials a, b, ... that reported the same value at each step."""
    return {
        "abcdefgh"[place]: [(float(step), value) for step in range(1, steps + 1)]
        for place, value in enumerate(values)
    }


def test_the_better_half_goes_on() -> None:
    behind = find_behind(flat(0.4, 0.1, 0.3, 0.2), ASHA)

    assert behind.keys() == {"a", "c"}
    assert (behind["a"].step, behind["a"].bound, behind["a"].trials) == (1.0, 0.2, 4)
    assert "loss 0.4 at step 1 is behind" in behind["a"].say("loss")


def test_the_first_to_come_goes_on_alone() -> None:
    assert not find_behind(flat(0.4), ASHA)


def test_a_trial_that_was_behind_comes_back_when_worse_ones_arrive() -> None:
    before = find_behind(flat(0.1, 0.2), ASHA)
    after = find_behind(flat(0.1, 0.2, 0.3, 0.4), ASHA)

    assert before.keys() == {"b"}
    assert after.keys() == {"c", "d"}


def test_each_rung_is_compared_by_itself() -> None:
    curves = {**flat(0.1, 0.2, steps=4), "x": [(1.0, 0.9)], "y": [(1.0, 0.8)]}

    behind = find_behind(curves, ASHA)

    assert {trial: each.step for trial, each in behind.items()} == {"x": 1.0, "y": 1.0, "b": 2.0}


def test_more_may_be_better() -> None:
    most = SearchTerms(SearchKind.ASHA, "accuracy", maximize=True, eta=2)

    assert find_behind(flat(0.9, 0.1), most).keys() == {"b"}
    assert best_of([(1.0, 0.1), (2.0, 0.9), (3.0, nan)], most) == 0.9


def test_what_is_no_number_is_worst_and_ties_go_to_the_first() -> None:
    assert find_behind(flat(nan, 0.5), ASHA).keys() == {"a"}
    assert find_behind(flat(0.5, 0.5), ASHA).keys() == {"b"}


def test_a_rung_between_two_reports_takes_the_later_one_and_keeps_it() -> None:
    curve = [(5.0, 0.5), (10.0, 0.4), (5.0, 0.6)]

    assert values_at(curve, [1.0, 6.0, 11.0]) == (0.5, 0.4)


def test_each_point_of_a_curve_is_looked_at_once_however_many_rungs_there_are() -> None:
    class Counted(list[tuple[float, float]]):
        looked = 0

        def __iter__(self) -> Iterator[tuple[float, float]]:
            for point in super().__iter__():
                Counted.looked += 1
                yield point

    steps = rungs(ASHA)
    curve = Counted([(0.0, 1.0)] * 239 + [(1e15, 2.0)])

    assert values_at(curve, steps) == (2.0,) * sum(step <= 1e15 for step in steps)
    assert Counted.looked == len(curve)


def test_the_order_in_which_trials_are_told_changes_nothing() -> None:
    curves = flat(0.4, 0.1, 0.3, 0.2, steps=4)

    verdicts = [find_behind(dict(order), ASHA) for order in permutations(curves.items())]

    assert all(verdict == verdicts[0] for verdict in verdicts)
