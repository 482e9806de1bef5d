"""Fitting finds a law again from what it predicts, and refuses what it cannot use."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from benchmarks.interference_fit import Group, Penalty, fit

from weft.core.errors import InvalidConfig
from weft.perf.sharing.interference import Features, Interference, InterferenceLaw, load_shipped

TRUTH = InterferenceLaw(
    weights=((-0.3, 1.5, 0.2, 0.3, -0.5, -0.2), (0.0, 0.1, 0.3, 0.2, 0.3, 0.0)),
    bumps=((0.0,), (0.0,)),
    centres=((0.0,) * 5,),
    width=0.5,
    cost=0.9,
)


def jobs(count: int, seed: int = 0) -> dict[str, Features]:
    rng = np.random.default_rng(seed)
    return {
        f"job{i}:1": Features(
            busy=float(rng.uniform(0.2, 0.98)),
            fill=float(rng.uniform(0.5, 0.98)),
            bandwidth=float(rng.uniform(0.05, 0.6)),
            kernel_us=float(math.exp(rng.uniform(1.0, 5.0))),
            step_s=float(math.exp(rng.uniform(-5.0, -2.0))),
        )
        for i in range(count)
    }


def groups(solo: dict[str, Features], size: int, law: InterferenceLaw = TRUTH) -> list[Group]:
    truth = Interference({"x": law})
    return [
        Group(names, tuple(truth.rates([solo[n] for n in names], "x").tolist()))
        for names in itertools.combinations(solo, size)
    ]


def worst(model: Interference, solo: dict[str, Features], measured: list[Group]) -> float:
    off = [
        np.abs(model.rates([solo[n] for n in group.members], "x") / group.rates - 1.0).max()
        for group in measured
    ]
    return float(max(off))


def test_a_law_is_found_again_and_holds_for_unseen_jobs_and_larger_groups() -> None:
    solo = jobs(12)
    seen = dict(list(solo.items())[:9])

    model = fit(seen, {"x": groups(seen, 2)})

    assert worst(model, seen, groups(seen, 2)) < 0.03
    assert worst(model, solo, groups(solo, 2)) < 0.15
    assert worst(model, seen, groups(seen, 3)) < 0.10


def test_what_features_cannot_tell_goes_into_the_kernel_terms() -> None:
    solo = jobs(8)
    measured = [
        Group(g.members, tuple(r * (0.8 if n == "job3:1" else 1.0) for n, r in _each(g)))
        for g in groups(solo, 2)
    ]

    plain, whole = (fit(solo, {"x": measured}, Penalty(kernel=kernel)) for kernel in (False, True))
    chosen = fit(solo, {"x": measured})

    assert _median(whole, solo, measured) < 0.7 * _median(plain, solo, measured)
    assert any(any(row) for row in chosen.laws["x"].bumps)


def _each(group: Group) -> list[tuple[str, float]]:
    return list(zip(group.members, group.rates, strict=True))


def _median(model: Interference, solo: dict[str, Features], measured: list[Group]) -> float:
    return float(np.median([worst(model, solo, [group]) for group in measured]))


def test_one_absurd_measurement_does_not_spoil_the_rest() -> None:
    solo = jobs(9)
    measured = groups(solo, 2)
    spoilt = [Group(measured[0].members, (0.05, 3.0)), *measured[1:]]

    model = fit(solo, {"x": spoilt})

    assert _median(model, solo, measured[1:]) < 0.03


def test_the_same_measurements_give_the_same_model() -> None:
    solo = jobs(6)

    first, other = (fit(solo, {"x": groups(solo, 2)}).laws["x"] for _ in range(2))

    assert first.weights == other.weights
    assert first.bumps == other.bumps


def test_more_demand_never_weighs_less() -> None:
    for law in load_shipped().laws.values():
        for weights in law.weights:
            assert min(weights[1:4]) >= 0.0


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        ([], "no measured groups"),
        ([Group(("job0:1", "job9:1"), (0.5, 0.5))], "job9:1"),
        ([Group(("job0:1", "blank:1"), (0.5, 0.5))], "blank:1"),
        ([Group(("job0:1",), (0.5,))], "1 rates of 1 members"),
        ([Group(("job0:1", "job1:1"), (0.5,))], "1 rates of 2 members"),
        ([Group(("job0:1", "job1:1"), (0.5, 0.0))], "not above 0"),
        ([Group(("job0:1", "job1:1"), (0.5, math.nan))], "not above 0"),
    ],
)
def test_groups_that_cannot_be_fitted_are_refused(measured: list[Group], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        fit(jobs(2) | {"blank:1": Features()}, {"x": measured})


def test_a_single_pair_can_be_fitted() -> None:
    solo = jobs(2)
    measured = groups(solo, 2)

    assert worst(fit(solo, {"x": measured}), solo, measured) < 0.1
