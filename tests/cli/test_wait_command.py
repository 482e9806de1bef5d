"""`weft wait`: blocks until jobs have ended, and exits as they did."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from packages.weft.tests.cli.jobs import job
from typer.testing import CliRunner, Result

from tests.cli.stand_in import StandIn, stand_in
from weft.cli.connect import follow
from weft.cli.main import cli
from weft.service.responses.answers import JobList

WELL = job("well", "succeeded")
BROKEN = job("broken", "failed", reason="rank 0 ended with exit code 3: no data")
WORSE = job("worse", "failed", reason="rank 0 ended with exit code 7: no disk")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(follow, "POLL_S", 0.0)
    answers = {
        "GET /jobs/well": [
            (200, job("well", "pending")),  # which job is meant
            (200, job("well", "pending")),
            (200, job("well")),
            (200, WELL),
        ],
        "GET /jobs/broken": (200, BROKEN),
        "GET /jobs/worse": (200, WORSE),
        "GET /jobs/endless": (200, job("endless")),
    }
    with stand_in(answers) as started:
        monkeypatch.setenv("WEFT_URL", started.url)
        monkeypatch.setenv("NO_COLOR", "1")
        yield started


def wait(*args: str) -> Result:
    return CliRunner().invoke(cli, ["wait", *args])


def test_it_blocks_until_a_job_has_succeeded(service: StandIn) -> None:
    ran = wait("well")

    assert ran.exit_code == 0, ran.output
    assert ran.stderr.splitlines() == ["well: pending", "well: running", "well: succeeded"]
    assert not any(asked.path.endswith("/logs") for asked in service.asked)


@pytest.mark.usefixtures("service")
def test_it_waits_for_all_and_exits_as_the_first_that_failed() -> None:
    ran = wait("broken", "well", "worse")

    assert ran.exit_code == 3
    assert ran.stderr.splitlines() == [
        "broken: failed: rank 0 ended with exit code 3: no data",
        "well: pending",
        "well: running",
        "well: succeeded",
        "worse: failed: rank 0 ended with exit code 7: no disk",
    ]


@pytest.mark.usefixtures("service")
def test_a_timeout_exits_as_timeout_does_and_the_job_goes_on() -> None:
    ran = wait("--timeout", "0s", "endless", "broken", "--json")

    assert ran.exit_code == 124
    assert json.loads(ran.stdout) == {"ended": {"broken": "failed"}, "waiting": ["endless"]}


def test_a_sweep_means_all_its_jobs_also_those_that_have_ended(service: StandIn) -> None:
    service.answers["GET /jobs"] = (200, JobList(jobs=[WORSE, WELL], next=None))

    ran = wait("sweep", "--quiet")

    assert (ran.exit_code, ran.output) == (7, "")


@pytest.mark.usefixtures("service")
def test_a_job_that_nobody_knows_is_a_mistake() -> None:
    assert wait("nobody").exit_code == 2


def test_submit_waits_for_every_job_and_exits_as_the_first_that_failed(service: StandIn) -> None:
    service.answers["POST /jobs"] = (201, {"id": "sweep", "jobs": ["well", "worse"]})

    ran = CliRunner().invoke(cli, ["submit", "--wait", "--", "python", "train.py"])

    assert ran.exit_code == 7, ran.output
    assert ran.stdout.startswith("submitted sweep, 2 jobs")
    assert ran.stderr.splitlines()[-1] == "worse: failed: rank 0 ended with exit code 7: no disk"


def test_submit_and_wait_of_one_job_prints_its_id_and_nothing_else(service: StandIn) -> None:
    service.answers["POST /jobs"] = (201, {"id": "well"})

    ran = CliRunner().invoke(cli, ["submit", "--wait", "-q", "--", "python", "train.py"])

    assert (ran.exit_code, ran.output) == (0, "well\n")


def test_following_the_log_exits_as_the_job_did(service: StandIn) -> None:
    service.answers["GET /jobs/broken/logs"] = (404, {"error": "nothing yet", "hint": ""})

    assert CliRunner().invoke(cli, ["logs", "-f", "broken"]).exit_code == 3
    assert CliRunner().invoke(cli, ["logs", "broken"]).exit_code == 0
