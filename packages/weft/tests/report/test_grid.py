"""Policies that differ in a few settings, as a heat map."""

from __future__ import annotations

import weft
from weft.report.figures import heat_maps, read_grid


def test_two_settings_that_vary_are_rows_and_columns() -> None:
    grid = read_grid(
        ["las:by=time,quantum=5", "las:by=time,quantum=9", "las:by=gpu-time,quantum=5"]
    )

    assert grid is not None
    assert grid.axes == (("by", ("time", "gpu-time")), ("quantum", ("5", "9")))
    assert grid.policies["gpu-time", "5"] == "las:by=gpu-time,quantum=5"


def test_of_three_settings_the_one_with_fewest_values_has_a_table_each() -> None:
    names = [f"x:a={a},b={b},c={c}" for a in "12" for b in "123" for c in "1234"]

    grid = read_grid([*names, "sia"])

    assert grid is not None
    assert [name for name, _ in grid.axes] == ["b", "c", "a"]
    assert len(grid.policies) == 24


def test_policies_that_differ_in_one_setting_or_in_name_make_no_grid() -> None:
    assert read_grid(["fifo", "srtf", "las:by=time", "las:by=gpu-time"]) is None
    assert read_grid(["weird|", "a"]) is None


def test_the_best_is_marked_and_what_was_left_out_says_so() -> None:
    specs = [
        f"compose:order={order},place={place}"
        for order, place in (("fifo", "packed"), ("fifo", "spread"), ("srtf", "packed"))
    ]
    result = weft.compare("tiny-20", specs)

    page = heat_maps(result.outcomes)

    assert page.count("<h3>") == 3
    assert page.count("★") >= 3
    assert page.count("makes no sense") == 3
    assert "order \\ place" in page
