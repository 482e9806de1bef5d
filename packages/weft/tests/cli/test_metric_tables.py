"""Metrics of jobs in the terminal: tables, pictures, CSV, and jobs in the order of a metric."""

from __future__ import annotations

import pytest
from packages.weft.tests.cli.jobs import job

from weft.cli.commands.jobs.metrics import as_rows, draw, plot_lines
from weft.cli.view.status import sort_by_metric, sweep_columns
from weft.core.errors import InvalidConfig
from weft.service.responses.answers import JobAnswer
from weft.service.responses.job_row import JobCurves, MetricCurve, MetricValue


def curve(name: str, *values: float | None) -> MetricCurve:
    numbers = [value for value in values if value is not None]
    return MetricCurve(
        name=name,
        step=len(values) - 1.0,
        value=values[-1],
        least=min(numbers, default=None),
        most=max(numbers, default=None),
        count=len(values),
        least_step=0.0,
        most_step=0.0,
        steps=[float(step) for step in range(len(values))],
        values=[*values],
        at=[0.0] * len(values),
    )


def curves(job: str, *metrics: MetricCurve) -> JobCurves:
    return JobCurves(id=job, name=job, state="running", metrics=[*metrics])


def test_a_curve_that_falls_is_drawn_from_the_left_top_to_the_right_bottom() -> None:
    lines = draw(curve("loss", 4.0, 3.0, 2.0, 1.0), 1.0, 4.0, 4, 2)

    assert [len(line) for line in lines] == [2, 4]
    assert lines == ["█▃", "██▆▁"]


def test_gaps_hold_the_value_before_them_and_a_constant_is_in_the_middle() -> None:
    assert draw(curve("a", 1.0, None, None, 2.0), 1.0, 2.0, 4, 1) == ["▁▁▁█"]
    assert draw(curve("a", 3.0), 3.0, 3.0, 1, 1) == ["▅"]


def test_jobs_of_a_sweep_share_a_scale() -> None:
    lines = plot_lines([curves("a", curve("loss", 2.0, 1.0)), curves("bb", curve("loss", 0.0))], 20)

    assert lines[:2] == ["", "loss: 0 to 2"]
    assert [line.split()[0] for line in lines[2:]] == ["a", "bb"]
    assert lines[2].endswith("▅")
    assert lines[3].startswith("bb ▁")


def test_a_metric_without_a_number_is_not_drawn() -> None:
    assert plot_lines([curves("a", curve("loss", None))], 20) == []


def test_every_point_is_a_row_and_no_name_is_a_formula() -> None:
    text = as_rows([curves("a", curve("=loss", 2.0, None))])

    assert text.splitlines() == [
        "job,metric,step,value,at", "a,'=loss,0.0,2.0,0.0", "a,'=loss,1.0,,0.0",
    ]  # fmt: skip


def a_job(name: str, loss: float | None, rate: str = "") -> JobAnswer:
    value = MetricValue(step=1.0, value=loss, least=loss, most=loss)
    return job(name, metrics={"loss": value}, parameters={"lr": rate} if rate else {})


def test_jobs_are_sorted_by_a_metric_and_those_without_a_number_come_last() -> None:
    jobs = [a_job("a", None), a_job("b", 2.0), a_job("c", 1.0), job("d")]

    assert [each.id for each in sort_by_metric(jobs, "loss")] == ["c", "b", "a", "d"]
    assert [each.id for each in sort_by_metric(jobs, "-loss")] == ["b", "c", "a", "d"]
    with pytest.raises(InvalidConfig, match="no job has a metric 'acc'") as raised:
        sort_by_metric(jobs, "acc")
    assert raised.value.hint == "there are: loss"


def test_a_sweep_has_columns_of_parameters_and_of_chosen_metrics() -> None:
    jobs = [a_job("a", 0.5, "0.1"), a_job("b", None, "0.2")]

    columns = sweep_columns(jobs, [])

    assert [column.heading for column in columns] == ["lr", "loss"]
    assert [[column.write(each) for column in columns] for each in jobs] == [
        ["0.1", "0.5"], ["0.2", "nan"],
    ]  # fmt: skip
    assert [column.heading for column in sweep_columns(jobs, ["val"])] == ["lr", "val"]
