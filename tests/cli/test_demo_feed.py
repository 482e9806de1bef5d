"""Jobs that keep coming to a demonstration that was left running."""

from __future__ import annotations

import sysconfig
from contextlib import suppress

import pytest
from packages.weft.tests.cli.jobs import CLUSTER, job

from tests.cli.stand_in import stand_in
from weft.cli.commands.cluster.demo import Show, what_next
from weft.cli.connect.client import ServiceClient
from weft.cli.job_files import demo_jobs
from weft.cli.job_files.demo_jobs import MOST, feed
from weft.service.responses.answers import JobList, Made


class Enough(Exception):  # noqa: N818 - ends a loop without end
    """Looked long enough."""


def test_jobs_come_while_few_run_and_none_while_many_do() -> None:
    running = [job(f"j{i}", "running") for i in range(MOST)]
    pages = iter([[], running[:1], running, running])
    now: list[object] = []
    paused: list[float] = []

    def look(asked: object) -> tuple[int, object]:
        running = "running" in asked.query.get("state", "")  # type: ignore[attr-defined]
        return 200, JobList(jobs=now if running else [], next=None)  # type: ignore[arg-type]

    def pause(seconds: float) -> None:
        paused.append(seconds)
        try:
            now[:] = next(pages)
        except StopIteration:
            raise Enough from None

    answers = {"GET /jobs": look, "POST /jobs": (201, Made(id="x"))}
    with stand_in(answers) as service:
        with suppress(Enough):
            feed(ServiceClient(service.url, ""), pause)
        made = [request.body for request in service.asked if request.method == "POST"]

    assert [body["name"] for body in made] == ["pictures-2", "speller-2", "law-a-2"]
    assert len(paused) == 5


def test_it_ends_with_the_service() -> None:
    assert feed(ServiceClient("http://127.0.0.1:1", ""), lambda _: None) == 0


def test_the_last_lines_say_what_to_try() -> None:
    lines = what_next("http://127.0.0.1:7878", ["pictures-1a"])

    assert "export WEFT_URL=http://127.0.0.1:7878" in lines
    assert "weft job pictures-1a" in lines
    assert "weft what-if --policy fifo" in lines


@pytest.mark.parametrize("installed", [True, False])
def test_the_first_of_them_finds_the_command(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sysconfig.get_path("scripts") if installed else ""
    monkeypatch.setenv("PATH", path)

    first = what_next("http://127.0.0.1:7878", []).splitlines()[0]

    assert ("PATH=" in first) is not installed


def test_jobs_that_people_add_to_the_demo_are_none_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_jobs, "WORKLOAD", demo_jobs.WORKLOAD[:1])
    jobs = [job("mine", "succeeded"), job("theirs", "failed"), job("endless", "running")]
    answers = {
        "POST /jobs": (201, Made(id="mine")),
        "GET /jobs": (200, JobList(jobs=jobs, next=None)),
        "GET /cluster": (200, CLUSTER),
    }
    with stand_in(answers) as service:
        show = Show(ServiceClient(service.url, ""), attended=False, fixed=True)
        show.play()
        show.final()

    assert show.good
