"""What is seen of a running attempt: speeds between two times, and nonsense refused."""

from __future__ import annotations

import math

import pytest

from weft.core.knowledge.measured import NOT_MEASURED, MeasuredAttempt


def steady(
    rate: float, since: float, until: float, start: float = 0.0
) -> list[tuple[float, float]]:
    count = round((until - since) * 4)
    return [(since + i / 4, start + rate * i / 4) for i in range(count + 1)]


def test_the_rate_between_two_times_is_of_the_steps_in_between() -> None:
    slow = steady(100.0, 1000.0, 1010.0)
    fast = steady(300.0, 1010.25, 1012.25, start=1075.0)
    seen = MeasuredAttempt(at=1012.4, samples=(*slow, *fast))

    assert seen.rate(1002.0, 1009.0) == pytest.approx(100.0)
    assert seen.rate(1010.25, 1012.3) == pytest.approx(300.0)
    assert seen.steps == pytest.approx(1675.0)


def test_one_sample_tells_no_rate() -> None:
    seen = MeasuredAttempt(at=1001.0, samples=((1000.0, 5.0),))

    assert seen.rate(999.0, 1001.0) is None
    assert NOT_MEASURED.rate(0.0, 1e9) is None
    assert NOT_MEASURED.steps is None


def test_a_job_that_stands_still_is_counted_to_the_last_look() -> None:
    seen = MeasuredAttempt(at=1010.0, samples=tuple(steady(100.0, 1000.0, 1002.0)))

    assert seen.rate(1000.0, 1010.0) == pytest.approx(20.0)
    assert seen.rate(1000.0, 1020.0) == pytest.approx(20.0)  # nobody has looked since 1010


def test_what_an_agent_wrote_is_read_back() -> None:
    values = {"at": 3.0, "samples": [[1.0, 4.0], [2.0, 9]], "unit": "step", "held_gb": 1.5}

    seen = MeasuredAttempt.parse({**values, "of a newer version": "ignored"})

    assert seen == MeasuredAttempt(
        at=3.0, samples=((1.0, 4.0), (2.0, 9.0)), unit="step", held_gb=1.5
    )


@pytest.mark.parametrize(
    "values",
    [
        {"held_gb": math.nan},
        {"held_gb": -1.0},
        {"held_gb": 10**400},
        {"held_gb": True},
        {"peak_gb": "80"},
        {"sm": 1.2},
        {"unit": "ducks"},
        {"unit": ["step"]},
        {"samples": "text"},
        {"samples": [[1.0]]},
        {"samples": [[1.0, 2.0], [1.0, 3.0]]},
        {"samples": [[1.0, 2.0], [2.0, 1.0]]},
        {"samples": [[1.0, 2.0], [2.0, 1e12]]},
        {"samples": [[1.0, math.inf]]},
        {"samples": [[float(i), float(i)] for i in range(5_000)]},
    ],
)
def test_what_cannot_be_right_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected|go from"):
        MeasuredAttempt.parse(values)
