"""The points of a space that a sweep tries."""

from __future__ import annotations

from weft.app.search.space import Range, Space, choose, draw, lay_grid

SPACE: Space = {"lr": Range(1e-4, 1.0, "log"), "layers": Range(1, 3, "int"), "opt": ("a", "b")}


def test_draws_are_within_the_space_and_the_same_each_time() -> None:
    points = choose(SPACE, "random", 300, seed=1)

    assert points == choose(SPACE, "random", 300, seed=1) != choose(SPACE, "random", 300, seed=2)
    assert {point["layers"] for point in points} == {1, 2, 3}
    assert {point["opt"] for point in points} == {"a", "b"}
    below = sum(float(point["lr"]) < 1e-2 for point in points)
    assert 120 < below < 180  # half of a range by ratio


def test_another_parameter_leaves_the_others_as_they_were() -> None:
    more = {"momentum": Range(0.0, 1.0), **SPACE}

    assert draw(SPACE, 0, 7).items() <= draw(more, 0, 7).items()


def test_a_grid_divides_ranges_as_finely_as_the_trials_allow() -> None:
    grid = [*lay_grid(SPACE, 20)]

    assert len(grid) == 2 * 3 * 3
    assert {point["lr"] for point in grid} == {1e-4, 1e-2, 1.0}
    assert {point["layers"] for point in grid} == {1, 2, 3}


def test_a_grid_of_few_trials_takes_the_middle_and_of_too_few_nothing() -> None:
    assert [*lay_grid(SPACE, 2)] == [
        {"lr": 0.01, "layers": 2, "opt": "a"},
        {"lr": 0.01, "layers": 2, "opt": "b"},
    ]
    assert not [*lay_grid(SPACE, 1)]


def test_whole_numbers_are_not_tried_twice() -> None:
    assert [*lay_grid({"n": Range(1, 3, "int")}, 50)] == [{"n": 1}, {"n": 2}, {"n": 3}]
