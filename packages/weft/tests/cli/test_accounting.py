"""The period and the groups of `weft accounting`."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from weft.cli.commands.cluster.accounting import UsedGroup, group_jobs, period
from weft.core.errors import InvalidConfig

ROWS = """\
id,name,tenant,user,state,submitted,started,ended,restarts,gpu_seconds,kinds,failed_gpu_seconds,\
idle_gpu_seconds,restarted_gpu_seconds
a,train,vision,ann,succeeded,1.0,2.0,3.0,1,100.0,a100:25.0;v100:75.0,0.0,0.0,10.0
b,train,vision,ann,failed,1.0,2.0,3.0,2,30.5,,30.5,0.0,0.0
c,train,nlp,bob,running,1.0,2.0,,0,400.0,a100:400.0,0.0,40.0,5.0
"""


def test_jobs_are_grouped_the_largest_first_with_what_was_wasted() -> None:
    names, groups = group_jobs(ROWS, "user,project")

    assert names == ["user", "project"]
    assert groups == [
        UsedGroup(("bob", "nlp"), 1, 400.0, 0, (0.0, 40.0, 5.0)),
        UsedGroup(("ann", "vision"), 2, 130.5, 3, (30.5, 0.0, 10.0)),
    ]
    assert [group.measures["wasted_gpu_seconds"] for group in groups] == [45.0, 40.5]


def test_a_job_that_ran_on_several_kinds_is_divided_among_them() -> None:
    names, groups = group_jobs(ROWS, "kind")

    assert names == ["kind"]
    assert groups == [
        UsedGroup(("a100",), 2, 425.0, 1, (0.0, 40.0, 7.5)),
        UsedGroup(("v100",), 1, 75.0, 1, (0.0, 0.0, 7.5)),
        UsedGroup(("",), 1, 30.5, 2, (30.5, 0.0, 0.0)),
    ]


def test_a_month_ends_where_the_next_one_begins() -> None:
    assert period("", "", "2026-12") == (
        datetime(2026, 12, 1, tzinfo=UTC).timestamp(),
        datetime(2027, 1, 1, tzinfo=UTC).timestamp(),
    )
    start, end = period("", "", "this")
    assert start is not None
    assert end is not None
    assert start <= time.time() < end + 1.0


def test_days_ago_count_whole_days() -> None:
    start, end = period("30d", "", "")

    assert end is None
    assert start is not None
    assert start % 86_400 == 0
    assert 30.0 <= (time.time() - start) / 86_400 < 31.1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("soon", "", ""), "--since 'soon' is not a day"),
        (("", "", "2026-13"), "is not a month"),
        (("30d", "", "this"), "are both given"),
    ],
)
def test_what_is_no_period_is_refused(words: tuple[str, str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        period(*words)


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'colour' is no group"):
        group_jobs(ROWS, "user,colour")
