"""What is predicted of jobs that train in regimes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import InvalidConfig
from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.model.job import Job, JobId
from weft.formulas.training import regimes

RUNS = ((32, 4), (64, 4), (128, 2))
DECLARED = regimes.Regimes(10, {32: 100.0, 64: 60.0, 128: 40.0})


def test_the_posterior_of_a_published_example() -> None:
    predicted = [
        regimes.predict_remaining(DECLARED, EpochsSoFar.after(p, RUNS)) for p in (0, 1, 3, 5, 7, 9)
    ]

    expected = [596.969697, 522.222222, 361.904762, 221.666667, 85.925926, 44.444444]
    assert predicted == pytest.approx(expected, abs=1e-6)
    assert regimes.predict_remaining(DECLARED, EpochsSoFar.after(10, RUNS)) == 1.0


def test_finished_epochs_are_counted_without_the_one_under_way() -> None:
    past = [regimes.past_seconds(DECLARED, EpochsSoFar.after(p, RUNS)) for p in (0, 1, 4, 5, 10)]

    assert past == [0.0, 100.0, 400.0, 460.0, 720.0]


def test_the_mean_epoch_is_of_those_begun() -> None:
    assert regimes.mean_epoch_s(DECLARED, EpochsSoFar.after(4, RUNS)) == pytest.approx(92.0)
    assert regimes.mean_epoch_s(DECLARED, EpochsSoFar()) == pytest.approx(200.0 / 3.0)


def test_epochs_that_take_longer_than_declared_stretch_the_rest() -> None:
    slow = EpochsSoFar(3, {32: 4}, 32, 2.0)

    assert regimes.predict_remaining(DECLARED, slow) == pytest.approx(2.0 * 361.904762)


@given(st.integers(2, 60), st.floats(1.0, 1e4), st.data())
def test_a_single_regime_is_predicted_one_epoch_short(
    epochs: int, seconds: float, data: st.DataObject
) -> None:
    over = data.draw(st.integers(0, epochs - 1))
    seen = EpochsSoFar.after(over, ((8, epochs),))

    assert regimes.predict_remaining(regimes.Regimes(epochs, {8: seconds}), seen) == pytest.approx(
        (epochs - over - 1) * seconds
    )


def test_regimes_travel_as_hints() -> None:
    job = Job(JobId("a"), hints={"batch": 32.0, **DECLARED.hints()})

    assert regimes.regimes_of(job) == DECLARED
    assert regimes.regimes_of(Job(JobId("b"), hints={"epochs": 3.0})) is None


@pytest.mark.parametrize(
    ("hints", "named"),
    [
        ({"regime0_batch": 8.0, "epochs": 3.0}, "regime0_epoch_s"),
        ({"regime0_batch": 8.0, "regime0_epoch_s": 5.0}, "epochs"),
        ({"regime0_batch": 0.0, "regime0_epoch_s": 5.0, "epochs": 3.0}, "regime0_batch"),
    ],
)
def test_a_regime_without_its_numbers_is_refused(hints: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        regimes.regimes_of(Job(JobId("a"), hints=hints))

    assert named in (refused.value.hint or "")
