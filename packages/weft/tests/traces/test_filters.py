from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.trace import Trace
from weft.traces.options import DrawRequest, Options
from weft.traces.read import load

TEXT = """id,tenant,submit_s,num_gpus,duration_s,state
a,x,100,1,10,completed
b,y,110,8,1000,failed
c,x,130,2,0,completed
d,x,150,4,50,running
e,y,170,1,,completed
"""


def read(tmp_path: Path, options: Options) -> Trace:
    path = tmp_path / "x.csv"
    path.write_text(TEXT)
    return load(path, options)


@pytest.mark.parametrize(
    ("options", "kept", "reason", "count"),
    [
        (Options(), "abd", "non-positive duration", 1),
        (Options(), "abd", "no start or end", 1),
        (Options(states=("failed", "COMPLETED")), "ab", "state", 1),
        (Options(tenants=("x",)), "ad", "tenant", 1),
        (Options(max_gpus=4), "ad", "more than max_gpus", 1),
        (Options(min_duration=20), "bd", "shorter than min_duration", 1),
        (Options(max_duration=100), "ad", "longer than max_duration", 1),
        (Options(window=(100, 150)), "ab", "outside window", 1),
        (Options(censored=False), "ab", "non-terminal state", 1),
        (Options(sample=2, seed=1), None, "not sampled", 1),
    ],
)
def test_each_filter_counts_what_it_drops(
    tmp_path: Path, options: Options, kept: str | None, reason: str, count: int
) -> None:
    trace = read(tmp_path, options)

    if kept is not None:
        assert "".join(job.id for job, _ in trace) == kept
    assert trace.report.dropped[reason] == count
    assert trace.report.rows == 5
    assert trace.report.kept == len(trace) == 5 - sum(trace.report.dropped.values())


def test_a_sample_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    assert read(tmp_path, Options(sample=2, seed=3)) == read(tmp_path, Options(sample=2, seed=3))


def test_clipped_lengths_are_marked(tmp_path: Path) -> None:
    trace = read(tmp_path, Options(clip_duration=100))

    assert [(t.length, t.censored) for _, t in trace] == [(10, False), (100, True), (50, True)]


def test_times_and_lengths_scale(tmp_path: Path) -> None:
    trace = read(tmp_path, Options(scale_arrivals=2, scale_duration=3))

    assert [(j.submitted, t.length) for j, t in trace] == [(100, 30), (105, 3000), (125, 150)]


def test_rebase_starts_at_zero(tmp_path: Path) -> None:
    trace = read(tmp_path, Options(rebase=True))

    assert [job.submitted for job, _ in trace] == [0, 10, 50]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Options, "attempts", "sums"),
        (Options, "scale_arrivals", 0.0),
        (Options, "sample", 0),
        (DrawRequest, "jobs", 0),
        (DrawRequest, "load", -1.0),
        (DrawRequest, "gpus", 0),
        (DrawRequest, "seed", -1),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    kind: type[Options | DrawRequest], name: str, value: float
) -> None:
    settings: dict[str, Any] = {name: value}

    with pytest.raises(InvalidConfig, match=name) as error:
        kind(**settings)

    assert error.value.hint
