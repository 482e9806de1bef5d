"""What jobs may say of themselves, and what is made of what they should not."""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import FrozenInstanceError, replace

import pytest

from weft.base import messages
from weft.core.events.report import NAMES, Report


def test_values_and_reports_are_the_same_thing() -> None:
    values = {"step_s": 0.5, "accumulate": 2.0, "loss": -1.0, "user.accuracy": 0.75}

    report = Report.parse(values)

    assert (report.step_s, report.accumulate, report.loss) == (0.5, 2.0, -1.0)
    assert report.user == {"accuracy": 0.75}
    assert report.batch is None
    assert report.values() == values


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("karma", 1.0, "a report has no field 'karma'"),
        ("user", 1.0, "a report has no field 'user'"),
        ("loss", math.nan, "loss is nan"),
        ("user.x", math.inf, "user.x is inf"),
        ("step_s", -1.0, "step_s is -1.0, expected 0 to"),
        ("progress", 1.5, "progress is 1.5, expected 0 to 1"),
        ("accumulate", 0.0, "accumulate is 0.0, expected 1 to"),
        ("batch", "many", "batch is 'many', expected a number"),
        ("batch", True, "batch is True, expected a number"),
        ("samples", 1e300, "samples is 1e\\+300"),
    ],
)
def test_a_value_that_cannot_be_right_is_named(name: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Report.parse({"loss": 1.0, name: value})


def test_a_report_cannot_be_changed_and_travels_whole() -> None:
    report = Report(loss=1.0, user={"x": 2.0})

    with pytest.raises(FrozenInstanceError):
        report.loss = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="no field 'karma'"):
        Report(karma=1.0)  # type: ignore[call-arg]

    assert pickle.loads(pickle.dumps(report)) == report
    assert replace(report, pace=0.5) == Report(loss=1.0, pace=0.5, user={"x": 2.0})
    assert report != Report(loss=1.0)


def test_a_log_is_read_without_what_cannot_be_right() -> None:
    assert Report.read({"loss": 1.0, "karma": 2.0, "step_s": "inf"}) == Report(loss=1.0)


def test_what_training_says_on_the_wire_is_in_these_words() -> None:
    matches = re.findall(r"^    (\w+)  +\w", messages.Report.__doc__ or "", flags=re.MULTILINE)

    assert {"step_s", "accumulate", "grad_sqr"} <= set(matches)
    assert set(matches) <= set(NAMES)
