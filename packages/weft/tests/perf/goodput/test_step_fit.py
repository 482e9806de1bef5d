"""Fits of the step-time model: what was measured is explained, what was not is hoped for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.base.step_fit import GAMMA, FitProblem, FitRow
from weft.base.step_times import TINY, StepTime
from weft.perf.goodput.fit import fit
from weft.perf.goodput.measurements import StepMeasurements

TRUE = StepTime(0.05, 0.001, 0.04, 0.002, 0.02, 0.001, 2.0)
ONE = ((1, 1, 128),)
TWO = ((1, 1, 64), *ONE)
NODE = (*TWO, (1, 2, 128), (1, 4, 128))
ALL = (*NODE, (2, 8, 128), (2, 8, 256), (4, 16, 128))


def measured(shapes: tuple[tuple[int, int, int], ...], times: StepTime = TRUE) -> list[FitRow]:
    """Noise-free rows at given (nodes, replicas, samples per GPU)."""
    return [FitRow(n, k, m, times.grad(m), times.step(n, k, m)) for n, k, m in shapes]


def off(times: StepTime, row: FitRow) -> float:
    """How far the predicted step time is from a measured one, as a part of it."""
    return abs(float(times.step(row.nodes, row.replicas, row.local)) / row.step_s - 1.0)


def test_one_row_leads_to_perfect_scaling() -> None:
    times = fit(measured(ONE))

    assert times.alpha_c == pytest.approx(0.089)  # half of the only gradient time
    assert times.beta_c == pytest.approx(0.089 / 128, rel=1e-3)
    assert max(times.alpha_n, times.beta_n, times.alpha_r, times.beta_r) <= 1.1 * TINY * 1.001
    assert times.throughput(2, 8, 128) == pytest.approx(5752.81, rel=1e-3)


def test_two_batch_sizes_tell_the_compute_time_apart() -> None:
    times = fit(measured(TWO))

    assert times.alpha_c == pytest.approx(0.05, rel=0.01)
    assert times.beta_c == pytest.approx(0.001, rel=0.01)
    assert times.sync(1, 8) < 1e-6
    assert times.sync(4, 32) < 1e-6


@pytest.mark.parametrize("shapes", [ONE, TWO, NODE, ALL], ids=("one", "two", "node", "all"))
def test_what_was_measured_is_predicted_within_one_percent(
    shapes: tuple[tuple[int, int, int], ...],
) -> None:
    rows = measured(shapes)

    times = fit(rows)

    assert max(off(times, row) for row in rows) < 0.01
    for row in rows:
        assert times.grad(row.local) == pytest.approx(row.grad_s, rel=0.01)


@pytest.mark.parametrize(
    ("shape", "speed"), [((1, 4, 128), 2854.68), ((2, 8, 128), 5522.0), ((4, 16, 128), 10748.03)]
)
def test_speeds_of_the_full_set_of_rows(shape: tuple[int, int, int], speed: float) -> None:
    times = fit(measured(ALL))

    assert times.throughput(*shape) == pytest.approx(speed, rel=0.015)


def test_several_nodes_are_believed_a_little_worse_than_one_until_tried() -> None:
    times = fit(measured(NODE))

    assert times.alpha_n == pytest.approx(1.1 * times.alpha_r)
    assert times.beta_n == pytest.approx(1.1 * times.beta_r)


def test_no_slope_is_believed_before_three_replicas_ran() -> None:
    times = fit(measured((*TWO, (1, 2, 128))))

    assert times.beta_r == TINY
    assert times.beta_n == pytest.approx(1.1 * TINY)
    assert times.alpha_r > 1e-4


def test_one_node_is_believed_free_after_several_nodes_alone() -> None:
    times = fit(measured((*TWO, (2, 2, 128), (2, 4, 128))))

    assert times.alpha_r == times.beta_r == TINY
    assert times.alpha_n > 1e-4


def test_the_order_and_repetition_of_rows_do_not_matter() -> None:
    rows = measured(ALL)

    assert fit(rows) == fit([*reversed(rows), rows[0]])


def test_two_fits_of_the_same_rows_are_equal_to_the_bit() -> None:
    rows = measured(NODE, TRUE._replace(alpha_c=0.0512345))

    assert fit(tuple(rows)) == fit(list(rows))


def test_noise_in_measurements_is_averaged_out() -> None:
    rng = np.random.default_rng(0)
    rows = [
        row._replace(step_s=row.step_s * float(rng.lognormal(0.0, 0.02))) for row in measured(ALL)
    ]

    times = fit(rows)

    assert max(off(times, row) for row in measured(ALL)) < 0.08


@examples(25)
@given(
    st.builds(
        StepTime,
        st.floats(0.01, 0.2),
        st.floats(1e-4, 1e-2),
        st.floats(0.01, 0.1),
        st.floats(1e-4, 1e-2),
        st.floats(0.005, 0.05),
        st.floats(1e-4, 5e-3),
        st.floats(1.0, 5.0),
    )
)
def test_parameters_stay_in_bounds_and_measured_rows_are_explained(times: StepTime) -> None:
    rows = measured(ALL, times)

    fitted = fit(rows)

    assert min(fitted[:6]) >= TINY
    assert GAMMA[0] <= fitted.gamma <= GAMMA[1]
    assert np.mean([off(fitted, row) for row in rows]) < 0.01


def test_the_slope_of_the_loss_is_that_of_its_values() -> None:
    problem = FitProblem(measured(ALL))
    here = np.array([0.08, 0.0015, 0.03, 0.004, 0.05, 0.002, 1.7])

    pull = problem.at(here.tolist()).pull

    for i in range(7):
        nudge = np.where(np.arange(7) == i, 1e-6, 0.0)
        up, down = (here * np.exp(sign * nudge) for sign in (1.0, -1.0))
        if i == 6:  # gamma is not taken on a logarithmic scale
            up, down = here + nudge, here - nudge
        slope = (problem.at(up.tolist()).loss - problem.at(down.tolist()).loss) / 2e-6
        assert 2.0 * pull[i] == pytest.approx(slope, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(("close", "fitted_again"), [(0.05, False), (0.0, True)])
def test_a_measurement_that_was_predicted_well_need_not_be_fitted(
    close: float, fitted_again: bool
) -> None:
    own = StepMeasurements(close=close)
    for row in measured(ALL):
        own.observe(row)
    own.times()
    before = own.version

    assert own.observe(measured(((2, 8, 160),))[0])

    assert (own.version != before) is fitted_again
