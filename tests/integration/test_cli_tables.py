"""What whole runs print, as tables for people and as CSV, JSON and reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import weft
from weft.cli.main import cli
from weft.core.errors import InvalidConfig
from weft.report.html import unpack, write_report
from weft.report.result_files import read_runs

ARGUMENTS = ["compare", "philly", "--cluster", "2x4:v100", "--jobs", "20", "-p", "fifo"]
LOADS = ["compare", "tiny-20", "-p", "fifo", "-p", "srtf", "-q", "--loads", "0.7,1.5"]


def test_csv_has_a_row_for_each_policy_and_metric_with_its_interval() -> None:
    words = ["compare", "tiny-20", "-p", "fifo", "-p", "srtf", "--seeds", "2", "--csv"]
    ran = CliRunner().invoke(cli, words)

    header, *rows = ran.stdout.splitlines()
    assert header == "policy,metric,mean,half_interval95,seeds"
    assert "fifo,jobs,20.0,0.0,2" in rows
    assert {row.split(",")[0] for row in rows} == {"fifo", "srtf"}
    assert CliRunner().invoke(cli, [*words, "--json"]).exit_code == 2


def test_loads_have_a_table_each_and_a_column_in_csv() -> None:
    tables = CliRunner().invoke(cli, LOADS).stdout
    header, *rows = CliRunner().invoke(cli, [*LOADS, "--csv"]).stdout.splitlines()

    assert tables.count("tiny-20 on ") == 2
    assert tables.index("offered load 0.70") < tables.index("offered load 1.50")
    assert header == "load,policy,metric,mean,half_interval95,seeds"
    assert [row for row in rows if ",fifo,jobs," in row] == [
        "0.7,fifo,jobs,20,0.0,1",
        "1.5,fifo,jobs,20,0.0,1",
    ]


def test_json_of_loads_is_a_list_that_can_be_verified(tmp_path: Path) -> None:
    text = CliRunner().invoke(cli, [*LOADS, "--json", "--per-job"]).stdout
    (tmp_path / "runs.json").write_text(text)

    loads = json.loads(text)["loads"]
    assert [each["load"] for each in loads] == [0.7, 1.5]
    assert loads[0]["offered_load"] < loads[1]["offered_load"]
    assert [run.name for run in read_runs(tmp_path / "runs.json")] == [
        *("fifo load 0.7", "srtf load 0.7", "fifo load 1.5", "srtf load 1.5")
    ]


def test_reports_of_loads_have_names_of_their_own(tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli, [*LOADS, "--report", str(tmp_path / "out.html")])

    assert ran.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out-0.7.html", "out-1.5.html"]


def test_the_bound_is_in_the_table_in_csv_and_in_json() -> None:
    run = CliRunner().invoke

    table = run(cli, [*ARGUMENTS, "--bound"], env={"COLUMNS": "80"}).output
    rows = run(cli, [*ARGUMENTS, "--bound", "--csv", "--seeds", "2"]).output
    whole = json.loads(run(cli, [*ARGUMENTS, "--bound", "--json"]).output)
    without = json.loads(run(cli, [*ARGUMENTS, "--json"]).output)

    assert "over bound" in table
    assert "bound: no schedule without shared GPUs averages below" in table
    assert max(map(len, table.splitlines())) <= 80
    assert "bound,avg_jct_h," in rows
    assert "fifo,jct_over_bound," in rows
    ratio = whole["policies"]["fifo"]["avg_jct_h"] / whole["bound"]["avg_jct_h"]
    assert whole["policies"]["fifo"]["jct_over_bound"] == pytest.approx(ratio)
    assert ratio >= 1.0
    assert "bound" not in without


def test_the_file_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    what = weft.compare("tiny-20", ["fifo", "srtf"])

    for name in ("one", "two"):
        write_report(what, tmp_path / name, title="Mine")

    first, two = ((tmp_path / name).read_bytes() for name in ("one", "two"))
    assert first == two
    text = first.decode()
    library = r'<script type="text/plain" id="plotly">(.*?)</script>'
    own = re.sub(library, "", text, flags=re.DOTALL)
    match = re.search(library, text, re.DOTALL)
    assert "<title>Mine</title>" in own
    assert not re.search(r"""(src|href|url\()\s*=?\s*["']?(https?:)?//""", own)
    assert match is not None
    assert "Plotly" in unpack(match[1])
    assert len(first) < 2_000_000


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot write the report"):
        write_report(weft.compare("tiny-20", "fifo"), tmp_path / "missing" / "report.html")
