"""How long something takes, and whether it is being done now."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from weft.core.latency import Latency


def test_times_add_up_and_the_longest_stays() -> None:
    clock = Clock(10.0)
    took = Latency(clock)

    for seconds in (1.0, 3.0, 2.0):
        with took.measured():
            clock.now += seconds

    assert (took.count, took.total_s, took.last_s, took.longest_s) == (3, 6.0, 2.0, 3.0)
    assert took.busy_s() == 0.0


def test_what_goes_on_now_is_told_and_a_failure_ends_it() -> None:
    clock = Clock(10.0)
    took = Latency(clock)

    with pytest.raises(OSError, match="full"), took.measured():
        clock.now += 7.0
        assert took.busy_s() == 7.0
        raise OSError("full")

    assert (took.busy_s(), took.count) == (0.0, 1)
