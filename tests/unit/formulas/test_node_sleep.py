"""Nodes that nobody will need sleep, by the worked example of CES."""

from __future__ import annotations

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.state.cells import Floats
from weft.formulas.node_sleep import SleepRule, daily_profile, sleep_nodes

USED = np.array([50, 52, 53, 55, 54, 53, 52, 50, 46, 45, 44, 60, 58, 57, 57, 56], dtype=float)
SAID = np.array([50, 52, 53, 54, 54, 53, 51, 49, 46, 44, 44, 44, 50, 55, 54, 53], dtype=float)
RULE = SleepRule(look_back=3, look_ahead=3, fell=0.5, will_fall=1.0, fewest=2, spare=5, keep=4)


def predicted(i: int, length: int) -> Floats:
    return SAID[i : i + length]


def test_the_worked_example_comes_out_bin_by_bin() -> None:
    slept = sleep_nodes(USED, 80, RULE, predicted)

    assert slept.awake.tolist() == [55, 57, 58, 60, 59, 58, 58, 55, 55, 55, 55, 65, 65, 65, 65, 61]
    assert (80 - slept.awake).sum() == 334
    assert USED.sum() / (80 * 16) == pytest.approx(0.6578, abs=1e-4)
    assert slept.utilisation(USED) == pytest.approx(0.8893, abs=1e-4)
    assert (slept.wake_ups, slept.woken, slept.short) == (1, 10, 5.0)


def test_never_are_more_awake_than_there_are() -> None:
    assert sleep_nodes(USED, 62, RULE, predicted).awake.max() == 62


def test_the_daily_profile_does_not_look_ahead() -> None:
    rng = np.random.default_rng(0)
    used = rng.integers(10, 60, 144 * 4).astype(float)
    later = used.copy()
    later[400:] = 0.0

    assert daily_profile(used)(399, 60).tolist() == daily_profile(later)(399, 60).tolist()
    plain = daily_profile(used, follow=0.0)(300, 5)
    days = used[300 - 144 : 305 - 144] + used[300 - 288 : 305 - 288]
    assert plain.tolist() == np.floor(days / 2).tolist()
    followed = daily_profile(used, follow=1.0)(300, 5)
    assert followed[0] == used[300]


def test_bins_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="node sleep"):
        SleepRule(look_back=0)
