"""The command line as people and scripts use it, in its own process."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from weft.cli.main import cli

ENV = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


def weft(*args: str, code: int = 0, columns: int = 120) -> Result:
    done = CliRunner().invoke(cli, list(args), env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert done.exit_code == code, done.output
    return done


def weft_alone(*args: str) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-m", "weft", *args]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, check=True).stdout


def test_simulate_prints_a_table_for_people() -> None:
    out = weft("simulate", "tiny-20", "--policy", "srtf").stdout

    assert "tiny-20" in out
    assert "avg JCT" in out
    assert "oracle" in out


def test_json_has_every_field_of_the_contract() -> None:
    out = json.loads(weft("simulate", "tiny-20", "-p", "srtf", "--json", "--per-job").stdout)

    assert set(out) >= {"weft", "workload", "cluster", "seed", "policies"}
    assert set(out["policies"]["srtf"]) >= {
        *("jobs", "finished", "failed", "avg_jct_h", "p50_jct_h", "p99_jct_h", "max_jct_h"),
        *("makespan_h", "avg_queue_h", "gpu_hours_per_job", "restarts_per_job"),
        *("avg_contention", "max_contention", "utilization", "worst_ftf", "unfair_fraction"),
        *("decisions", "decide_ms", "wall_s", "predictor", "per_job"),
    }
    assert set(out["policies"]["srtf"]["per_job"][0]) == {
        *("id", "submit_s", "start_s", "end_s", "restarts", "gpu_s", "ftf", "static_ftf"),
        "held",
    }


def test_timings_are_in_the_json_only_when_asked_for() -> None:
    plain = json.loads(weft("simulate", "tiny-20", "--json").stdout)["policies"]["las"]
    timed = json.loads(weft("simulate", "tiny-20", "--json", "--timing").stdout)

    assert plain["wall_s"] is None
    assert timed["policies"]["las"]["wall_s"] >= 0
    assert timed["policies"]["las"]["decide_ms"]["p50"] > 0


def test_same_seed_same_bytes_whatever_the_number_of_processes() -> None:
    args = ("compare", "philly", "--jobs", "60", "-p", "fifo", "-p", "gittins", "--seeds", "2")
    noise = ("--predictor", "noisy:sigma=1", "--node-mtbf-h", "50", "--json", "--per-job")

    outputs = {weft_alone(*args, *noise, "--processes", n) for n in ("1", "3")}

    assert len(outputs) == 1


def test_events_are_the_same_bytes_for_the_same_seed(tmp_path: Path) -> None:
    for run, name in ((weft, "a"), (weft_alone, "b")):
        run("simulate", "tiny-20", "--seed", "3", "--events", str(tmp_path / name))

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    events = [json.loads(line)["event"] for line in (tmp_path / "a").read_text().splitlines()]
    assert events[:4] == ["PolicyChanged", "NodeUp", "NodeUp", "Submitted"]


def test_compare_writes_a_self_contained_report(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    weft("compare", "tiny-20", "-p", "fifo", "-p", "srtf", "--report", str(page))

    assert "srtf" in page.read_text()


@pytest.mark.parametrize("kind", ["policy", "trace", "predictor", "cluster", "model", "engine"])
def test_list_shows_what_there_is(kind: str) -> None:
    assert weft("list", kind).stdout
    assert isinstance(json.loads(weft("list", kind, "--json").stdout), list)


BIG = "id,submit_s,num_gpus,duration_s\na,0,4,60\nb,5,64,60\n"


@pytest.mark.parametrize(
    ("args", "what", "hint"),
    [
        (("tiny-20", "-p", "strf"), "did you mean 'srtf'?", "weft list policy"),
        (("tiny-20", "-p", "las:bye=time"), "did you mean 'by'?", "it has by, place, quantum"),
        (("tiny-20", "-p", "las:quantum=soon"), "is not a number", ""),
        (("tiny-20", "-c", "8x8"), "'8x8' is not NODESxGPUS:KIND", "8x8:v100"),
        (("tiny-20", "-c", "0x8:v100"), "has 0 GPUs", "at least 1"),
        (("tiny-20", "-c", "no.yaml"), "cannot read no.yaml", ""),
        (("fili",), "no workload or file named 'fili'", "weft list trace"),
        (("big.csv", "-c", "2x8:v100"), "job 'b' asks for 64 GPUs", "--max-gpus 16"),
        (("empty.csv",), "empty", "at least one"),
        (("header.csv",), "no job", ""),
        (("cut.csv",), "cut.csv, line 3", ""),
        (("cut.csv.gz",), "cut.csv.gz", ""),
        (("big.csv", "--jobs", "3"), "built-in workloads only", "--sample"),
        (("tiny-20", "--predictor", "orcale"), "did you mean 'oracle'?", "weft list predictor"),
        (("tiny-20", "--window", "soon"), "is not START:END", "0:86400"),
        (("tiny-20", "-o", "atempts=sum"), "did you mean 'attempts'?", ""),
        (("tiny-20", "--events", "no/where/e.jsonl"), "cannot write events", ""),
    ],
)
def test_a_mistake_is_answered_shortly_with_a_hint_and_exit_code_2(
    args: tuple[str, ...], what: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("big.csv").write_text(BIG)
    Path("empty.csv").write_text("")
    Path("header.csv").write_text("id,submit_s,num_gpus,duration_s\n")
    Path("cut.csv").write_text(BIG[:-6])
    Path("cut.csv.gz").write_bytes(gzip.compress(BIG.encode() * 500)[:-20])

    done = weft("simulate", *args, code=2)

    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith("error: ")
    assert what in lines[0]
    assert hint in done.stderr
    pointed = any(set(line.strip()) == {"^"} for line in lines)  # the text, and a mark under it
    assert len(lines) <= (4 if pointed else 2)
    assert "Traceback" not in done.stderr


def test_start_up_imports_nothing_heavy() -> None:
    code = "import sys; from weft.cli.main import cli; import weft; print(' '.join(sys.modules))"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    heavy = {"numpy", "plotly", "pandas", "scipy", "torch", "highspy", "weft.sim.driver"}
    assert not heavy & set(loaded)


def test_reading_answers_loads_no_web_framework() -> None:
    rooms = "weft.service.responses.answers, weft.service.responses.json_values"
    code = f"import sys; import {rooms}; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"fastapi", "pydantic", "starlette", "numpy"} & set(loaded)


def test_the_solver_is_loaded_only_by_those_who_need_it() -> None:
    code = "import sys, weft_papers.gavel.policy; print('highspy' in sys.modules)"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize(("forget", "code"), [("main.forget_caught_interrupts()", 0), ("", -2)])
def test_an_interrupt_that_was_caught_does_not_end_the_process_by_a_signal(
    forget: str, code: int
) -> None:
    lines = [
        "from weft.cli import main",
        "try: exec('raise KeyboardInterrupt')",
        "except KeyboardInterrupt: pass",
        forget,
    ]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=False)
    assert ran.returncode == code


def test_parts_and_who_stands_where_are_listed_within_80_columns() -> None:
    for what in (["part"], ["policy", "--where", "sharing,unknown-durations"]):
        done = weft("list", *what, columns=80)

        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "order=las" in done.stdout or "gandiva" in done.stdout


def test_compare_sweeps_over_a_set_and_says_what_it_left_out(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = weft(
        "compare", "tiny-20", "-q", "-p", "compose:order={fifo,las},size={asked,sia}",
        "--report", str(page), "--json",
    )  # fmt: skip

    assert len(json.loads(done.stdout)["policies"]) == 3
    assert "left out compose:order=fifo,size=sia" in done.stderr
    assert "Combinations" in page.read_text()
