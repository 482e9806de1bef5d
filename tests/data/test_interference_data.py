"""The model against measurements: half of the pairs fitted, the other half predicted."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.interference import errors, fittings, halves, without
from benchmarks.interference_data import Measured, h200, lucid, model_of

from weft.perf.sharing.interference import load_shipped

pytestmark = pytest.mark.data
SEEDS = range(5)
ALLOWED = 0.12


@pytest.fixture
def measured(data: Callable[[str], Path]) -> Measured:
    return h200(data("h200").parent)


def half_error(measured: Measured, discipline: str, seeds: range) -> float:
    """Median over random halves of the median error of per-job rates."""
    fitting = fittings(measured, discipline)["ours"]
    medians = []
    for seed in seeds:
        kept, rest = halves(measured.pairs[discipline], seed)
        guess = fitting(kept)
        medians.append(statistics.median(errors((pair, guess) for pair in rest)))
    return statistics.median(medians)


@pytest.mark.parametrize("discipline", ["timeslicing", "mps"])
def test_the_other_half_of_the_h200_pairs_is_predicted(discipline: str, measured: Measured) -> None:
    assert half_error(measured, discipline, SEEDS) <= ALLOWED


@pytest.mark.slow
def test_the_other_half_of_lucids_pairs_is_predicted_better_than_by_its_scores(
    data: Callable[[str], Path],
) -> None:
    measured = lucid(data("lucid/single_data.csv").parents[1])
    kept, rest = halves(measured.pairs["timeslicing"], 0)
    fits = fittings(measured, "timeslicing")

    ours, scores = (
        statistics.fmean(errors((pair, guess) for pair in rest))
        for guess in (fits[name](kept) for name in ("ours", "scores"))
    )

    assert ours <= ALLOWED
    assert ours < scores


@pytest.mark.slow
@pytest.mark.parametrize("discipline", ["timeslicing", "mps"])
def test_models_never_seen_and_larger_groups_are_predicted(
    discipline: str, measured: Measured
) -> None:
    pairs, fitting = measured.pairs[discipline], fittings(measured, discipline)["ours"]
    guess = fitting(pairs)
    models = sorted({model_of(name) for group in pairs for name in group.members})
    unseen = errors(test for model in models for test in without(fitting, pairs, model))
    large = errors((g, guess) for g in measured.groups[discipline] if len(g.members) > 2)

    assert statistics.median(unseen) <= ALLOWED
    assert statistics.median(large) <= 0.15


def test_the_shipped_features_are_the_measured_ones(measured: Measured) -> None:
    assert set(load_shipped().known) == set(measured.solo)
    for name, job in load_shipped().known.items():
        assert job.busy == pytest.approx(measured.solo[name].busy, rel=1e-4)


@pytest.mark.parametrize("discipline", ["timeslicing", "mps"])
def test_the_shipped_model_fits_what_it_was_fitted_to(discipline: str, measured: Measured) -> None:
    model = load_shipped()
    every = [*measured.pairs[discipline], *measured.groups[discipline]]

    off = errors(
        (g, lambda g: model.rates([model.known[n] for n in g.members], discipline).tolist())
        for g in every
    )

    assert statistics.median(off) == pytest.approx(model.errors[discipline]["fitted"], abs=0.002)
