from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.core.errors import TraceError
from weft.traces.options import Options
from weft.traces.read import load, recognise


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def entry(name: str, status: str, submitted: str, *attempts: object) -> dict[str, object]:
    return {
        "jobid": name,
        "status": status,
        "vc": "v1",
        "user": "u1",
        "submitted_time": submitted,
        "attempts": list(attempts),
    }


TWO_GPUS = (
    attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 2),
    attempt("2017-10-07 01:13:30", "2017-10-07 02:13:30", 2),
)
LOG = [
    entry("a1", "Pass", "2017-10-07 01:11:39", *TWO_GPUS),
    entry(
        "a2",
        "Killed",
        "2017-10-09 03:04:16",
        attempt("2017-10-09 03:07:23", "None", 1),
        attempt("2017-10-09 03:11:14", "2017-10-09 03:11:57", 1),
    ),
    entry("a3", "Failed", "2017-10-09 03:05:00"),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(LOG))
    return path


def test_attempts_are_summed_by_default(log: Path) -> None:
    trace = load(log)

    assert [(j.id, j.demand.gpus, t.length, t.state) for j, t in trace] == [
        ("a1", 2, 3674.0, "completed"),
        ("a2", 1, 43.0, "cancelled"),
    ]
    assert trace.report.dropped == {"no attempts": 1}
    assert (trace.jobs[0][0].tenant, trace.jobs[0][0].user) == ("v1", "u1")
    assert "117,325" in trace.report.warnings[0]


def test_time_counts_from_midnight_of_the_first_day(log: Path) -> None:
    trace = load(log)

    assert trace.jobs[0][0].submitted == 3600 + 11 * 60 + 39
    assert trace.origin is not None
    assert trace.origin.isoformat() == "2017-10-07T00:00:00+00:00"


@pytest.mark.parametrize(("policy", "lengths"), [("span", [3681, 274]), ("last", [3600, 43])])
def test_other_ways_to_count_attempts(log: Path, policy: str, lengths: list[float]) -> None:
    trace = load(log, Options(attempts=policy))

    assert [truth.length for _, truth in trace] == lengths


def test_split_makes_every_attempt_a_job(log: Path) -> None:
    trace = load(log, Options(attempts="split", rebase=True))

    assert [(j.id, j.submitted, t.length, t.state) for j, t in trace][:2] == [
        ("a1", 0.0, 74.0, "failed"),
        ("a1-attempt2", 104.0, 3600.0, "completed"),
    ]
    assert trace.report.dropped == {"no attempts": 1, "no start or end": 1}


def test_a_last_attempt_without_end_is_still_running(tmp_path: Path) -> None:
    path = tmp_path / "log"
    runs = (
        attempt("2017-10-07 01:00:00", "2017-10-07 01:01:00", 4, 4),
        attempt("2017-10-07 01:02:00", None, 4, 4),
    )
    path.write_text(json.dumps([entry("a", "Pass", "2017-10-07 01:00:00", *runs)]))

    [(job, truth)] = load(path)

    assert job.demand.gpus == 8
    assert (truth.length, truth.state, truth.censored) == (60.0, "running", True)


def test_a_log_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(json.dumps(LOG)[:-40])

    with pytest.raises(TraceError, match="expected a JSON array of jobs"):
        load(path)


def test_a_broken_time_names_job_and_field(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(json.dumps([entry("a", "Pass", "yesterday", attempt(None, None, 1))]))

    with pytest.raises(TraceError, match="'submitted_time' of job 'a': found 'yesterday'"):
        load(path)


def test_the_digested_csv(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "timestamp,vc,num_gpus,duration,gpu_time\n2017-09-04 10:30:41,7f04ca,8,20.0,160.0\n"
    )

    [(job, truth)] = load(path)

    assert recognise(path).name == "philly-csv"
    assert (job.submitted, job.demand.gpus, job.tenant) == (37841.0, 8, "7f04ca")
    assert truth.length == 20.0


def test_a_row_without_a_time_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("timestamp,num_gpus,duration\n,1,20\n2017-09-04 10:30:41,8,20\n")

    trace = load(path)

    assert trace.report.dropped == {"no start or end": 1}
    assert trace.jobs[0][0].submitted == 37841.0
