"""Results in the terminal: a row a policy at any width, and stars for what holds."""

from __future__ import annotations

from functools import cache

import pytest
from rich.console import Console
from typer.testing import CliRunner

import weft
from weft.cli.main import cli
from weft.formulas.statistics import differs, interval
from weft.report.tables import result_tables
from weft.report.units import duration, number, percent

POLICIES = ["fifo", "fifo:backfill=true", "srtf"]


@cache
def compared(seeds: int) -> weft.Result:
    return weft.compare("philly", POLICIES, "2x4:v100", jobs=20, seeds=seeds)


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("width", [80, 100])
def test_every_policy_has_a_row_and_nothing_is_cut(width: int, seeds: int) -> None:
    result = compared(seeds)
    tables = result_tables(result.outcomes, width)

    screen = Console(width=width, no_color=True)
    with screen.capture() as capture:
        screen.print(*tables, sep="\n")
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    assert all(text.count(f"\u2502 {name} ") == len(tables) for name in POLICIES)
    assert all(heading in text for heading in ("avg JCT", "makespan", "unfair", "predictor"))
    assert "\u2026" not in text


def test_a_difference_holds_where_seeds_agree_and_not_where_they_do_not() -> None:
    assert differs([1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
    assert not differs([1.0, 3.0, 1.0], [2.0, 1.5, 2.0])
    assert differs([1.0], [2.0])  # once is once: nothing is left to chance


def test_the_interval_is_of_pairs_and_not_of_means() -> None:
    noisy, less = [10.0, 20.0, 30.0], [9.0, 19.0, 29.0]

    assert interval(noisy, less) == (1.0, 0.0)


def test_means_of_several_seeds_have_half_their_interval() -> None:
    several, single = compared(3), compared(1)
    mean, half = several.interval("fifo", "utilization")
    screen = Console(width=500, no_color=True)

    with screen.capture() as capture:
        screen.print(*result_tables(several.outcomes, 500), sep="\n")
    with screen.capture() as alone:
        screen.print(*result_tables(single.outcomes, 500), sep="\n")

    assert f"{100 * mean:.0f} ± {100 * half:.0f} %" in capture.get()
    assert "±" not in alone.get()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (duration(0.02, 0.001), "72 ± 3.6 s"),
        (duration(0.5, 0.25), "30 ± 15 min"),
        (duration(5.0, 1.25), "5 ± 1.2 h"),
        (duration(96.0, 2.4), "4 ± 0.1 d"),
        (percent(0.61, 0.043), "61 ± 4.3 %"),
        (percent(0.061, 0.0), "6.1 %"),
        (number(1234.0, 120.0), "1,234 ± 120"),
    ],
)
def test_half_an_interval_has_the_unit_of_its_mean(text: str, expected: str) -> None:
    assert text == expected


LOADS = ["compare", "tiny-20", "-p", "fifo", "-p", "srtf", "-q", "--loads", "0.7,1.5"]


@pytest.mark.parametrize("loads", ["0.7,", "0.7,many", "0.7,0.7", "0", "-1", "nan", "inf"])
def test_loads_that_are_none_are_refused_before_anything_runs(loads: str) -> None:
    ran = CliRunner().invoke(cli, [*LOADS[:-1], loads])

    assert ran.exit_code == 2
    assert "--loads: " in ran.stderr
    assert "for example 0.7,1.0,1.3" in ran.stderr


def test_load_and_loads_are_not_given_together() -> None:
    ran = CliRunner().invoke(cli, [*LOADS, "--load", "1"])

    assert (ran.exit_code, "--load and --loads" in ran.stderr) == (2, True)


def test_bounds_have_a_row_and_a_column_of_their_own() -> None:
    bounds = {"avg_jct_h": 0.25, "avg_queue_h": 0.05}
    several = weft.compare("tiny-20", ["fifo", "srtf"])
    single = weft.simulate("tiny-20", "fifo")

    (rows,) = result_tables(several.outcomes, 500, "waits", bounds)
    (turned,) = result_tables(single.outcomes, 60, "waits", bounds)

    cells = {str(c.header): [str(cell).strip() for cell in c.cells] for c in rows.columns}
    assert cells["policy"] == ["bound", "fifo", "srtf"]
    assert (cells["avg JCT"][0], cells["avg wait"][0], cells["p95 wait"][0]) == (
        "15 min",
        "3 min",
        "",
    )
    names, least, own = ([str(cell).strip() for cell in c.cells] for c in turned.columns)
    assert least[names.index("avg wait")] == "3 min"
    assert all(own)
