"""What `weft verify` finds in results that are sound, and in those that are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import weft
from weft.report.result_files import read_runs
from weft.report.verify import Severity, verify

HEAD = "# gpus: 4\n# knows: nothing\n# seeds: 3\n# intervals: yes\n"
HEAD += "run,job,submit_s,start_s,end_s,gpus\n"


def wrong(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return {
        finding.check: finding.text
        for finding in verify(read_runs(path))
        if finding.level is Severity.WRONG
    }


@pytest.mark.parametrize("policy", ["srtf", "sia", "antman", "muri"])
def test_our_own_results_stand_up(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    result = weft.simulate("tiny-20", policy)
    path.write_text(json.dumps(result.as_dict(per_job=True)))

    levels = {finding.check: finding.level for finding in verify(read_runs(path))}

    assert Severity.WRONG not in levels.values()
    assert levels["capacity"] is levels["all jobs"] is levels["mean"] is Severity.OK


def test_gpus_that_are_not_there_are_counted(tmp_path: Path) -> None:
    rows = "a,x,0,0,100,4\na,y,0,50,100,2\n"

    problems = wrong(tmp_path / "runs.csv", HEAD + rows)

    assert problems["capacity"].startswith("6 of 4 GPUs in use at once; above it for 50 s, 20.0%")


def test_what_is_wrong_with_jobs(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"

    assert "1 of 2 jobs have no end" in wrong(file, f"{HEAD}a,x,0,0,9,1\na,y,0,0,,1\n")["all jobs"]
    given = wrong(file, f"{HEAD}a,x,0,0,9,1\na,z,0,0,9,1\nb,x,0,0,9,1\nb,y,0,9,9,1\n")["same jobs"]
    assert given == "b was given other jobs than a: it lacks z and adds y"
    assert "other times" in wrong(file, f"{HEAD}a,x,0,3,9,1\nb,x,2,3,9,1\n")["same jobs"]
    assert "before they were submitted" in wrong(file, f"{HEAD}a,x,5,3,9,1\n")["times"]
    assert "two places" in wrong(file, f"{HEAD}a,x,0,3,9,1\na,x,0,5,9,1\n")["overlap"]
    mean = f"# avg_jct_s: 5\n{HEAD}a,x,0,3,9,1\n"
    assert "reports a mean completion time of 5.0 s; its rows say 9.0" in wrong(file, mean)["mean"]


def test_costs_must_be_alike(tmp_path: Path) -> None:
    head = HEAD.replace("gpus\n", "gpus,startup_s\n").replace("# gpus,startup_s", "# gpus")

    problems = wrong(tmp_path / "runs.csv", f"{head}a,x,0,3,9,1,30\nb,x,0,3,9,1,2\n")

    assert problems["costs"] == "of a start: a 30.0 s, b 2.0 s"


@pytest.mark.parametrize(("starts", "level"), [(1, Severity.OK), (2, Severity.UNKNOWN)])
def test_restarts_that_cost_nobody_anything_are_pointed_out(
    starts: int, level: Severity, tmp_path: Path
) -> None:
    head = HEAD.replace("gpus\n", "gpus,startup_s\n").replace("# gpus,startup_s", "# gpus")
    path = tmp_path / "runs.csv"
    path.write_text(head + "".join(["a,x,0,3,9,1,0\n", "a,x,0,20,30,1,0\n"][:starts]))

    (costs,) = (finding for finding in verify(read_runs(path)) if finding.check == "costs")

    assert costs.level is level
    assert ("no start costs anything" in costs.text) == (starts == 2)
