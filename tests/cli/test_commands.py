"""Commands against a stand-in: what they ask for and what they print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from packages.weft.tests.cli.jobs import CLUSTER, NODES, PAGE, QUEUE, job
from typer.testing import CliRunner, Result

from tests.cli.stand_in import StandIn, stand_in
from weft.cli.commands.jobs.job import interval
from weft.cli.main import cli
from weft.service.responses.answers import (
    Ahead,
    Change,
    Done,
    Explanation,
    JobList,
    Made,
    Part,
    Start,
)
from weft.service.responses.watch import Planned


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    answers = {
        "GET /jobs": (200, PAGE),
        "GET /cluster": (200, CLUSTER),
        "GET /nodes": (200, NODES),
        "GET /jobs/first": (200, QUEUE[0]),
        "POST /jobs": (201, Made(id="new-1")),
        "DELETE /jobs/first": (202, Done(done="job first is cancelled")),
        "POST /jobs/first/suspend": (202, Done(done="job first is suspended")),
        "POST /jobs/first/resume": (202, Done(done="job first goes on when there is room")),
        "PUT /jobs/first/priority": (202, Done(done="job first is of priority normal")),
        "POST /nodes/ada/drain": (200, Done(done="node ada is drained")),
    }
    with stand_in(answers) as started:
        monkeypatch.setenv("WEFT_URL", started.url)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("NO_COLOR", "1")
        yield started


def weft(*args: str, code: int = 0) -> Result:
    ran = CliRunner().invoke(cli, list(args))
    assert ran.exit_code == code, ran.output
    return ran


def test_submit_takes_a_file_and_flags_and_prints_the_id_alone(
    service: StandIn, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: [python, train.py]\ngpus: 2\n")

    ran = weft("submit", str(path), "--quiet", "--priority", "opportunistic", "--no-share")

    assert ran.stdout == "new-1\n"
    assert service.asked[0].body == {
        "name": "job",
        "command": ["python", "train.py"],
        "gpus": 2,
        "workdir": str(tmp_path),
        "priority": "opportunistic",
        "share": "never",
    }


def test_submit_takes_a_command_with_options_of_its_own(service: StandIn) -> None:
    weft("submit", "-g", "1-4", "--", "python", "train.py", "--gpus", "9", "-q")

    body = service.asked[0].body
    assert body["command"] == ["python", "train.py", "--gpus", "9", "-q"]
    assert body["gpus"] == {"min": 1, "max": 4}


def test_a_mistake_in_a_file_names_file_field_and_the_closest(
    service: StandIn, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: [x]\ngpu: 2\n")
    problem = {
        "error": "no field 'gpu'; did you mean 'gpus'?",
        "hint": "fields: ...",
        "field": "gpu",
    }
    service.answers["POST /jobs"] = (422, problem)

    ran = weft("submit", str(path), code=2)

    assert f"{path}: no field 'gpu'; did you mean 'gpus'?" in ran.stderr
    assert "hint: fields" in ran.stderr


def test_run_follows_and_exits_with_the_jobs_code(service: StandIn) -> None:
    ended = job("new-1", "failed", reason="rank 0 ended with exit code 3: oh", attempt=1)
    service.answers["GET /jobs/new-1"] = (200, ended)
    service.answers["GET /jobs/new-1/logs"] = lambda asked: (
        200,
        b"hello\n"[int(asked.query["offset"]) :],
    )

    ran = weft("run", "python", "train.py", "--lr", "1", code=3)

    assert ran.stdout == "hello\n"
    assert "new-1: failed: rank 0 ended with exit code 3: oh" in ran.stderr
    assert service.asked[0].body["command"] == ["python", "train.py", "--lr", "1"]


def test_run_detached_prints_the_id(service: StandIn) -> None:
    assert weft("run", "-d", "--", "true").stdout == "new-1\n"


def test_jobs_pages_through_and_leaves_out_the_old_ones(service: StandIn) -> None:
    old = [job(f"old-{i}", "succeeded", ended=1.0) for i in range(30)]
    service.answers["GET /jobs"] = [(200, JobList(jobs=old, next="30")), (200, PAGE)]

    listed = json.loads(weft("jobs", "--json").stdout)["jobs"]

    assert [row["id"] for row in listed[:9]] == [f"old-{i}" for i in range(21, 30)]
    assert {job.id for job in QUEUE} <= {row["id"] for row in listed}
    assert service.asked[-1].query["after"] == "30"


def test_with_very_many_ended_jobs_only_the_others_are_read(service: StandIn) -> None:
    service.answers["GET /cluster"] = (200, replace(CLUSTER, jobs={"succeeded": 100_000}))
    service.answers["GET /jobs"] = lambda asked: (
        200,
        JobList(jobs=[job for job in QUEUE if job.state in asked.query["state"]], next=None),
    )

    listed = json.loads(weft("jobs", "--json").stdout)["jobs"]

    assert [row["id"] for row in listed] == [job.id for job in QUEUE[:4]]


def test_a_job_that_has_just_ended_is_listed_after_an_array_that_came_later(
    service: StandIn,
) -> None:
    long = job("long", "succeeded", ended=900.0)
    array = [job(f"a-{i}", "succeeded", app="array", ended=500.0 + i) for i in range(8)]
    others = [job(f"other-{i}", "succeeded", ended=100.0 + i) for i in range(10)]
    service.answers["GET /jobs"] = (200, JobList(jobs=[long, *others, *array], next=None))

    listed = {row["id"] for row in json.loads(weft("jobs", "--json").stdout)["jobs"]}

    assert {"long", *(each.id for each in array)} <= listed
    assert {each.id for each in others} - listed == {"other-0", "other-1"}
    assert "older jobs that have ended are left out; `weft jobs --all`" in weft("jobs").stdout
    assert "left out" not in weft("jobs", "--all").stdout


def test_a_list_without_the_ended_says_how_to_see_them(service: StandIn) -> None:
    service.answers["GET /cluster"] = (200, replace(CLUSTER, jobs={"succeeded": 501}))

    assert "left out; `weft jobs --all` lists them" in weft("jobs").stdout
    service.answers["GET /cluster"] = (200, replace(CLUSTER, jobs={"succeeded": 1}))
    assert "left out" not in weft("jobs").stdout


def test_every_look_prints_at_80_columns(service: StandIn) -> None:
    for command in (["jobs"], ["job", "first"], ["nodes"], ["top", "--once"]):
        out = weft(*command).stdout

        assert "first" in out
        assert max(map(len, out.splitlines())) <= 80


def test_cancel_and_drain_say_what_they_did(service: StandIn) -> None:
    assert weft("cancel", "first").stdout == "cancelled first\n"
    assert "ada is drained" in weft("drain", "ada").stdout
    body = json.loads(weft("drain", "ada", "--json").stdout)
    assert body == {"done": "node ada is drained", "changed": True}


def test_cancelling_a_job_that_has_ended_says_so(service: StandIn) -> None:
    done = Done(done="job first has succeeded: there is nothing to cancel", changed=False)
    service.answers["DELETE /jobs/first"] = (202, done)

    assert weft("cancel", "first").stdout == f"{done.done}\n"


def test_jobs_finds_any_job_by_its_name(service: StandIn) -> None:
    named = replace(job("train-1", "succeeded"), name="train")
    service.answers["GET /jobs"] = lambda asked: (
        200,
        JobList(jobs=[] if "app" in asked.query else [named, job("other", "running")], next=None),
    )

    out = weft("jobs", "train").stdout

    assert "train-1" in out
    assert "other" not in out
    assert "first" in weft("jobs", "first").stdout  # by its id
    service.answers["GET /jobs/none"] = (404, {"error": "there is no job 'none'"})
    assert "no job, sweep or app 'none'" in weft("jobs", "none", code=2).stderr


def test_output_for_programs_is_a_line_a_job_without_rules(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    long = replace(job("first", "pending"), reason="waits for " + "a very long reason " * 8)
    service.answers["GET /jobs"] = (200, JobList(jobs=[long], next=None))

    head, line = weft("jobs").stdout.splitlines()

    assert head.split()[0] == "id"
    assert "a very long reason a very long reason" in line


def test_suspend_resume_and_priority_say_what_they_did(service: StandIn) -> None:
    assert weft("suspend", "first").stdout == "suspended first\n"
    assert weft("resume", "first", "--json").stdout.split() == [
        "{",
        '"resumed":',
        "[",
        '"first"',
        "]",
        "}",
    ]
    assert weft("priority", "first", "normal").stdout == "normal now: first\n"
    wrong = weft("priority", "first", "norml", code=2).stderr
    assert "no priority named 'norml'; did you mean 'normal'?" in wrong


def test_cancelling_says_what_was_done_before_a_mistake(service: StandIn) -> None:
    assert "(first cancelled before)" in weft("cancel", "first", "nobody", code=2).stderr


def test_a_pattern_cancels_only_once_somebody_agrees(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sweep-1", "sweep-2"):
        service.answers[f"DELETE /jobs/{name}"] = (202, Done(done=""))
    running = [job("sweep-1", "running"), job("other", "running")]
    pending = [job("a:x", "pending"), job("sweep-2", "pending")]
    service.answers["GET /jobs"] = (200, JobList(jobs=[*running, *pending], next=None))

    refused = weft("cancel", "sweep-*", code=2).stderr
    assert "matches 2 jobs: sweep-1, sweep-2" in refused
    assert "--yes" in refused
    assert not [request for request in service.asked if request.method == "DELETE"]
    assert weft("cancel", "sweep-*", "--yes").stdout == "cancelled sweep-1, sweep-2\n"
    assert "no job that has not ended matches 'z*'" in weft("cancel", "z*", code=2).stderr

    monkeypatch.setattr("weft.cli.commands.jobs.change.interactive", lambda: True)
    said_no = CliRunner().invoke(cli, ["cancel", "sweep-?"], input="n\n")
    assert said_no.stdout.endswith("nothing was cancelled\n")
    said_yes = CliRunner().invoke(cli, ["cancel", "sweep-?"], input="y\n")
    assert said_yes.stdout.endswith("cancelled sweep-1, sweep-2\n")


def test_without_a_service_a_command_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_URL", "http://127.0.0.1:1")

    assert "start one with `weft serve`" in weft("jobs", code=2).stderr


def test_explain_reads_as_sentences(service: StandIn) -> None:
    service.answers["GET /jobs/first/explain"] = (
        200,
        Explanation(
            id="first",
            state="pending",
            reason="asks for 4 GPUs, 1 is free",
            numbers={"free": 1, "asked": 4},
            ahead=[
                Ahead(id="right", name="right", tenant="", state="", gpus=1),
                Ahead(id="left", name="left", tenant="", state="running", gpus=2),
            ],
            cheapest_change=Change(text="ask for 1 GPU: it would start now", fields={"gpus": 1}),
            start=Start(p10=60, p50=200, p90=900, simulations=12),
        ),
    )

    out = weft("explain", "first", "--verbose").stdout

    assert "first is pending" in out
    assert "right (1 GPU), left (2 GPUs, running)" in " ".join(out.split())
    assert "likely in 3.33 min (60 s to 15 min)" in out
    assert "ask for 1 GPU: it would start now" in out
    assert interval(Start(p10=1e-6, p50=1e-6, p90=1e-6, simulations=12)) == "likely at once"


def test_plan_says_whether_a_job_would_start(service: StandIn) -> None:
    service.answers["POST /plan"] = (
        200,
        Planned(
            starts_now=True,
            allocation=[Part(node="ada", gpus=[3], kind="cpu", share=1.0)],
            displaces=[Ahead(id="left", name="left", tenant="", state="running", gpus=1)],
            reason="it is first",
            start=None,
        ),
    )

    out = weft("plan", "--", "python", "a.py").stdout

    assert "a: would start now" in out
    assert "ada:3" in out
    assert "left" in out

    assert "a job: would start now" in weft("plan", "--gpus", "4").stdout
    assert service.asked[-1].body["gpus"] == 4


@pytest.mark.parametrize("group", ["state", "token", "quota", "reserve", "webhook"])
def test_a_group_of_commands_offers_its_commands_and_nothing_else(group: str) -> None:
    assert "completion" not in weft(group, "--help").stdout


def test_a_check_of_the_state_has_no_marks_of_colour_in_its_words(tmp_path: Path) -> None:
    printed = weft("state", "check", "--state", str(tmp_path / "none"), code=1).stdout

    assert printed.splitlines()[0] == f"   error  {tmp_path / 'none'} is not a folder"


def test_the_log_of_ones_own_service_is_judged_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "weft"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # so that no path is broken
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    missing = weft("verify", code=2).output
    own.mkdir()
    empty = weft("verify", code=2).output
    weft("simulate", "philly", "--jobs", "5", "--events", str(own / "events.db"))

    assert "does not exist" in missing
    assert "there is no log" in empty
    assert "nothing is wrong" in weft("verify").stdout


@pytest.mark.parametrize("word", ["ps", "ls", "queue", "squeue"])
def test_words_of_other_schedulers_are_understood(service: StandIn, word: str) -> None:
    assert weft(word).output == weft("jobs").output
    assert weft("scancel", "first").output == weft("cancel", "first").output


@pytest.mark.parametrize(
    ("word", "meant"), [("stop", "weft cancel"), ("status", "weft top"), ("attach", "weft logs -f")]
)
def test_a_word_that_may_mean_several_commands_is_explained(word: str, meant: str) -> None:
    assert meant in " ".join(weft(word, "first", code=2).output.split())


def test_a_line_for_a_shell_is_refused_before_it_fails(service: StandIn) -> None:
    refused = weft("submit", "--", "cd data && python train.py", code=2)

    assert "is one word, and no program is called so" in refused.output
    assert "sh -c 'cd data && python train.py'" in refused.output
    assert service.asked == []


def test_a_state_that_no_job_is_in_is_said_so(service: StandIn) -> None:
    service.answers["GET /jobs"] = (200, JobList(jobs=[], next=None))
    service.answers["GET /cluster"] = (200, replace(CLUSTER, jobs={"succeeded": 2, "failed": 1}))

    assert weft("jobs", "--state", "running").output == "none of 3 jobs is running\n"
    several = weft("jobs", "--state", "running,pending").output
    assert several == "none of 3 jobs is running or pending\n"
