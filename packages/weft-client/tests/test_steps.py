"""Waits for jobs, and for a service that is away."""

from __future__ import annotations

from typing import NoReturn

import pytest

from weft_client import steps
from weft_client.errors import Unreachable
from weft_client.steps import PATIENCE_S, patiently, poll_until, run


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(steps, "time", clock)
    return clock


def away() -> NoReturn:
    raise Unreachable("no service answers")


def test_a_wait_lasts_as_long_as_it_may(clock: Clock) -> None:
    with pytest.raises(TimeoutError, match="it is 0 after 10 s"):
        run(poll_until(lambda: 0, bool, 10.0, "it is {}".format))

    assert clock.now == pytest.approx(10.0)


def test_a_wait_for_a_service_that_is_away_ends_in_time(clock: Clock) -> None:
    with pytest.raises(TimeoutError, match="after 5 s no service answers"):
        run(poll_until(away, bool, 5.0, str))

    assert clock.now == pytest.approx(5.0, abs=0.5)


def test_a_service_that_stays_away_is_not_waited_for_for_ever(clock: Clock) -> None:
    with pytest.raises(Unreachable):
        patiently(away)

    assert clock.now == pytest.approx(PATIENCE_S, abs=0.5)


def test_a_wait_goes_on_when_the_service_is_back(clock: Clock) -> None:
    def ask() -> bool:
        return bool(clock.now >= 60.0 or away())

    assert run(poll_until(ask, bool, None, str))
