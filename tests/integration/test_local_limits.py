"""Setups, time limits and tries by exit code, with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_local_details import printed, run
from weft.core.events.event import Event, Failed, Finished, Noticed
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.runtime.loop.admit import judge_failure
from weft.runtime.records.job_records import JobRecord
from weft.wire.attempt import folder_of


def shell(script: str, folder: Path, gpus: int = 1, **launch: Any) -> Job:
    how = Launch(("bash", "-c", script), workdir=str(folder), **launch)
    return Job(JobId("job"), demand=Demand(gpus), launch=how)


def test_a_setup_runs_once_before_the_processes_and_in_their_folder(tmp_path: Path) -> None:
    setup = "echo ${RANK:-none} >> setups\necho ready > made | cat\n"

    done = run(tmp_path / "s", shell("cat made", tmp_path, gpus=2, setup=setup))

    assert done[-1] == Finished(JobId("job"), 1)
    assert (tmp_path / "setups").read_text() == "none\n"
    assert printed(tmp_path / "s", "job") == "ready\n"


def test_a_setup_that_fails_is_named_and_nothing_else_runs(tmp_path: Path) -> None:
    done = run(tmp_path / "s", shell("touch ran", tmp_path, setup="false | cat\ntouch on\n"))

    failed = done[-1]
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("its setup failed with exit code 1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_a_time_limit_warns_and_then_ends_the_job_for_good(tmp_path: Path) -> None:
    script = "trap 'echo warned' USR1; trap 'echo left; exit 0' TERM; echo on; "
    script += "while :; do sleep 0.05; done"

    done = run(tmp_path, shell(script, tmp_path, time_limit_s=5.0, warn_s=2.5, grace_s=20.0))

    failed = done[-1]
    assert isinstance(failed, Failed)
    assert failed.final
    assert "time limit of 5 s" in failed.reason
    words = [word for word in printed(tmp_path, "job").split() if word != "Terminated"]
    assert words == ["on", "warned", "left"]
    assert [event.level for event in done if isinstance(event, Noticed)] == ["warning"]


def test_the_exit_code_of_a_failure_is_told(tmp_path: Path) -> None:
    ended: list[Event] = [
        run(tmp_path / name, shell(script, tmp_path))[-1]
        for name, script in (("seven", "exit 7"), ("killed", "kill -9 $$"))
    ]

    assert [event.code for event in ended if isinstance(event, Failed)] == [7, -9]


@pytest.mark.parametrize(
    ("code", "final", "again"), [(75, False, True), (1, False, False), (75, True, False)]
)
def test_only_the_exit_codes_that_were_named_are_tried_again(
    code: int, final: bool, again: bool
) -> None:
    launch = Launch(("x",), retries=3, retry_on=(75, -9))
    record = JobRecord(Job(JobId("job"), launch=launch), submitted=0.0)

    verdict = judge_failure(Failed(JobId("job"), 1, "why", code=code, final=final), record)

    assert verdict.retry is again
    assert verdict.code == code


def test_a_job_that_asks_for_a_short_log_keeps_its_last_output(tmp_path: Path) -> None:
    script = "head -c 1500000 /dev/zero | tr '\\0' x; echo; echo last"

    run(tmp_path / "s", shell(script, tmp_path, log_mb=1))

    logs = folder_of(tmp_path / "s", "job", 1)
    assert sorted(path.name for path in logs.glob("rank-0.log*")) == ["rank-0.log", "rank-0.log.1"]
    assert (logs / "rank-0.log").read_text().endswith("last\n")
