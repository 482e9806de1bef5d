"""Progressive filling: the worked examples that the authors' own functions give."""

from __future__ import annotations

from math import inf

import pytest

from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand
from weft.pieces.size.min_share import (
    DeadlineDemand,
    Promises,
    ShareSchedule,
    fill_all,
    grow_shares,
)
from weft.pieces.size.promised import levels_of

LEVELS = (1, 2, 4, 8)
TOY = (1.0, 1.8, 3.0, 4.0)


def toy(work: float, deadline: float) -> DeadlineDemand:
    return DeadlineDemand(work, deadline, LEVELS, TOY)


def short(schedule: ShareSchedule) -> tuple[dict[float, int], float, float]:
    return dict(schedule.steps), schedule.real_end, schedule.end


@pytest.mark.parametrize(
    ("work", "deadline", "expected"),
    [
        (1000.0, 600.0, ({0.0: 2}, 556.0, 600.0)),
        (600.0, 600.0, ({0.0: 1}, 600.0, 600.0)),
        (601.0, 600.0, ({0.0: 2}, 334.0, 360.0)),
        (100.0, 130.0, ({0.0: 1}, 100.0, 120.0)),
    ],
)
def test_the_smallest_level_that_ends_in_time(
    work: float, deadline: float, expected: tuple[dict[float, int], float, float]
) -> None:
    schedule = Promises(0.0, 8).fill(toy(work, deadline))

    assert short(schedule) == expected
    assert schedule.met


def test_too_much_work_is_late() -> None:
    schedule = Promises(0.0, 8).fill(toy(2401.0, 600.0))

    assert short(schedule) == ({0.0: 8}, 601.0, 660.0)
    assert not schedule.met


def test_a_third_job_does_not_fit() -> None:
    two = fill_all(Promises(0.0, 8), [toy(1800.0, 600.0), toy(1800.0, 900.0)])
    three = fill_all(Promises(0.0, 8), [toy(1800.0, 600.0), toy(1800.0, 600.0), toy(1800.0, 900.0)])

    assert [short(schedule)[1] for schedule in two] == [600.0, 600.0]
    assert [schedule.met for schedule in three] == [True, True, False]
    assert three[2].real_end == 1050.0


def test_late_start_with_one_level_less_before() -> None:
    promises = Promises(0.0, 8)
    promises.add(promises.fill(toy(180.0, 60.0)))

    schedule = promises.fill(toy(1090.0, 600.0))
    promises.add(schedule)

    assert short(schedule) == ({0.0: 2, 60.0: 4}, 388.0, 420.0)
    assert dict(zip(promises.times, promises.free, strict=True)) == {0.0: 2, 60.0: 4, 420.0: 8}


@pytest.mark.parametrize("worst_first", [False, True])
def test_spare_gpus_go_to_who_scales(worst_first: bool) -> None:
    bad = DeadlineDemand(1000.0, 6000.0, LEVELS, (1.0, 1.2, 1.3, 1.35), held=1)
    good = DeadlineDemand(1000.0, 6000.0, LEVELS, (1.0, 1.95, 3.8, 7.4))
    promises = Promises(0.0, 3)
    schedules = fill_all(promises, [bad, good])

    grown = grow_shares(promises, [bad, good], schedules, worst_first=worst_first)

    assert [schedule.at(0.0) for schedule in grown] == ([2, 1] if worst_first else [1, 2])


def test_a_restart_that_is_planned_for_needs_a_larger_share() -> None:
    free = Promises(0.0, 8).fill(toy(590.0, 600.0))
    costly = Promises(0.0, 8).fill(DeadlineDemand(590.0, 600.0, LEVELS, TOY, restart_s=30.0))

    assert free.at(0.0) == 1
    assert costly.at(0.0) == 2
    assert costly.met


def test_levels_are_powers_of_two_inside_a_node_and_of_whole_nodes() -> None:
    cluster = parse_cluster("4x8:v100")

    assert levels_of(Demand(2, 2, 64), cluster, "v100", 32) == (2, 4, 8, 16, 32)
    assert levels_of(Demand(1, 1, 24), parse_cluster("4x6:v100"), "v100", 24) == (1, 2, 4, 12, 24)


def test_who_fits_on_no_gpus_that_are_left_never_ends() -> None:
    schedule = Promises(0.0, 2).fill(DeadlineDemand(100.0, 600.0, (4,), (4.0,)))

    assert short(schedule) == ({0.0: 0}, inf, inf)
    assert not schedule.met
