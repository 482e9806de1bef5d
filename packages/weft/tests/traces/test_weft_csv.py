from __future__ import annotations

from pathlib import Path

import pytest

from weft.core.errors import TraceError
from weft.core.model.job import After, Demand, JobId
from weft.traces.options import Options
from weft.traces.read import load
from weft.traces.write import write

HEADER = "id,user,tenant,submit_s,num_gpus,gpu_type,duration_s,state\n"


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    return path


def test_four_columns_are_enough(tmp_path: Path) -> None:
    path = file(tmp_path, "id,submit_s,num_gpus,duration_s\nb,5,2,60\na,0,0.25,30\n")

    trace = load(path)

    assert [(j.id, j.submitted, j.demand, t.length) for j, t in trace] == [
        ("a", 0.0, Demand(1, share=0.25), 30.0),
        ("b", 5.0, Demand(2), 60.0),
    ]
    assert trace.name == "jobs"
    assert (trace.report.rows, trace.report.kept) == (2, 2)


def test_jobs_submitted_together_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, HEADER + "z,,,0,1,,9,\na,,,0,1,,9,\nm,,,0,1,,9,\n")

    trace = load(path)

    assert [job.id for job, _ in trace] == ["z", "a", "m"]


def test_the_gpu_type_is_information_unless_asked(tmp_path: Path) -> None:
    path = file(tmp_path, HEADER + "a,,,0,1,V100|T4|V100,9,\n")

    free, bound = load(path), load(path, Options(kinds=True))

    assert free.jobs[0][0].demand.kinds == ()
    assert bound.jobs[0][0].demand.kinds == ("v100", "t4")


def test_a_gang_of_parts_keeps_its_instances(tmp_path: Path) -> None:
    path = file(tmp_path, "id,submit_s,num_gpus,duration_s,num_instances\na,0,0.3,9,3\nb,0,8,9,2\n")

    trace = load(path)

    assert [job.demand for job, _ in trace] == [Demand(3, share=0.1), Demand(8)]


def test_open_and_clipped_jobs_are_censored(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "id,submit_s,num_gpus,duration_s,state,extra\n"
        "a,0,1,9,running,\nb,0,1,9,failed,duration_censored_48h\nc,0,1,9,,\n",
    )

    trace = load(path)

    assert [(t.state, t.censored) for _, t in trace] == [
        ("running", True),
        ("failed", True),
        ("completed", False),
    ]


def test_sets_in_one_file_can_be_chosen(tmp_path: Path) -> None:
    path = file(tmp_path, "set,id,submit_s,num_gpus,duration_s\n0,a,0,1,9\n1,a,0,1,9\n")

    loaded = load(path, Options(subset="1"))

    with pytest.raises(TraceError, match="holds 2 workloads: 0, 1") as refused:
        load(path)
    assert "-o subset=0" in refused.value.hint
    assert [job.id for job, _ in loaded] == ["a"]
    assert loaded.report.dropped == {"subset": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,,,0,1,,9", "line 2, column 'state': found '7 columns', expected 8"),
        ("a,,,x,1,,9,", "line 2, column 'submit_s': found 'x', expected a number"),
        ("a,,,0,-2,,9,", "line 2, column 'num_gpus': found '-2', expected 0 or more"),
        ("a,,,0,1,,inf,", "line 2, column 'duration_s': found 'inf', expected a finite number"),
    ],
)
def test_a_broken_cell_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = file(tmp_path, HEADER + row + "\n")

    with pytest.raises(TraceError) as error:
        load(path)

    assert message in error.value.what
    assert error.value.hint
    assert "\n" not in error.value.what + error.value.hint


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "id,submit_s,num_gpus\na,0,1\n")

    with pytest.raises(TraceError, match="a column named duration_s"):
        load(path)


def test_jobs_name_those_they_run_after(tmp_path: Path) -> None:
    rows = "a,0,1,9,\nb,0,1,9,\nc,0,1,9,ok:a;any:b\n"
    path = file(tmp_path, "id,submit_s,num_gpus,duration_s,after\n" + rows)

    trace = load(path)
    write(trace, tmp_path / "again.csv")

    assert trace.jobs[2][0].after == After(ok=(JobId("a"),), any=(JobId("b"),))
    assert load(tmp_path / "again.csv").jobs == trace.jobs


@pytest.mark.parametrize("after", ["ok:b", "ok:a", "soon:x", "x"])
def test_only_jobs_of_lines_before_can_be_waited_for(after: str, tmp_path: Path) -> None:
    rows = f"a,0,1,9,{after}\nb,0,1,9,\n"
    path = file(tmp_path, "id,submit_s,num_gpus,duration_s,after\n" + rows)

    with pytest.raises(TraceError, match="of jobs in lines before"):
        load(path)


def test_gangs_that_ask_for_nodes_are_written_and_read_again(tmp_path: Path) -> None:
    text = "id,submit_s,num_gpus,duration_s,num_nodes\na,0,8,60,2\nb,5,2,60,\n"
    trace = load(file(tmp_path, text))

    write(trace, tmp_path / "again.csv")

    again = load(tmp_path / "again.csv")
    assert [job.demand for job, _ in again] == [Demand(8, nodes=2), Demand(2)]
    assert again.jobs == trace.jobs


def test_a_file_without_such_gangs_has_no_column_for_them(tmp_path: Path) -> None:
    write(load(file(tmp_path, HEADER + "z,,,0,1,,9,\n")), tmp_path / "again.csv")

    assert "num_nodes" not in (tmp_path / "again.csv").read_text()
