"""Work that people ask for is ended when it takes too much, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile import hungry_work
from tests.integration.serving import API, FAST, bearer, serving, token
from tests.waiting import wait_until
from weft.core.errors import EngineError, InvalidConfig
from weft.runtime.aside.messages import TookTooMuch
from weft.runtime.aside.process import AsideProcess
from weft.service.budget import aside
from weft.service.budget.aside import Aside
from weft.service.jobs import searches
from weft.service.routes.jobs import jobs

CPU_S = 0.5


@pytest.fixture
def process() -> Iterator[AsideProcess]:
    made = AsideProcess(cpu_s=CPU_S, memory_gb=2.0)
    yield made
    made.close()


@pytest.mark.parametrize(
    "hungry", [hungry_work.loop, hungry_work.loop_in_c, hungry_work.fill_memory]
)
def test_what_takes_too_much_is_ended_and_the_next_is_done(
    process: AsideProcess, hungry: object
) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with pytest.raises(TookTooMuch):
        process.run(hungry)  # type: ignore[arg-type]

    assert process.run(hungry_work.count) != os.getpid()
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert spent < 20 * CPU_S, "it was ended by the clock and not for what it took"


def test_what_ends_its_process_is_told_as_that(process: AsideProcess) -> None:
    with pytest.raises(EngineError, match="code 3"):
        process.run(hungry_work.end_process)

    assert process.run(hungry_work.count) == process.pid


def test_a_mistake_of_ours_is_told_as_that_and_ends_nothing(process: AsideProcess) -> None:
    """It was told as work that took too much: the process was ended as it ended."""
    assert process.run(hungry_work.count) == (first := process.pid)

    with pytest.raises(EngineError, match="KeyError"):
        process.run(hungry_work.make_a_mistake)

    assert process.run(hungry_work.count) == first


def test_errors_and_progress_come_back(process: AsideProcess) -> None:
    heard: list[int] = []

    process.run(hungry_work.count, heard.append)
    with pytest.raises(InvalidConfig, match="this is wrong"):
        process.run(hungry_work.complain)

    assert heard == [0, 1, 2]


def test_work_that_nobody_wants_any_more_is_ended_with_its_next_report(
    process: AsideProcess,
) -> None:
    def refuse(_: object) -> None:
        raise InvalidConfig("no more of this")

    assert process.run(hungry_work.count) == (first := process.pid)
    with pytest.raises(InvalidConfig, match="no more of this"):
        process.run(hungry_work.count, refuse)

    assert process.run(hungry_work.count) != first  # what was left of it went with its process


def test_the_loop_goes_on_while_work_is_done_aside() -> None:
    async def life() -> int:
        aside = Aside("test", cpu_s=0.5, memory_gb=2.0)
        working = asyncio.ensure_future(aside.do(lambda: hungry_work.loop))
        turns = 0
        while not working.done():
            turns += 1
            await asyncio.sleep(0.001)
        assert isinstance(working.exception(), TookTooMuch)
        aside.close()
        return turns

    assert asyncio.run(life()) > 100


def test_every_question_of_a_service_is_answered_by_a_process_of_its_own() -> None:
    """Viewers may ask, too."""
    with serving() as client:
        admin = token(client, "admin")
        who = bearer(token(client, "user", "a", admin))
        job = {"gpus": 8, "hints": {"duration_s": 3600}}
        ids = [client.post(f"{API}/jobs", json=job, headers=who).json()["id"] for _ in range(3)]
        viewer = bearer(token(client, "viewer", "a", admin))

        why = client.get(f"{API}/jobs/{ids[-1]}/explain", headers=viewer)
        ahead = client.post(
            f"{API}/what-if", json={"start": "now", "nodes": "2x8:a100"}, headers=viewer
        )
        planned = client.post(f"{API}/plan", json=job, headers=who)
        line = client.get(f"{API}/queue", headers=viewer)
        text = client.post(f"{API}/job-file", json={"text": "gpus: 2"}, headers=who)

        for answer in (why, ahead, planned, line, text):
            assert answer.status_code == 200, answer.text
        assert why.json()["start"]["p50"] > 0.0
        assert len(ahead.json()["outlook"]) == 3
        assert planned.json()["starts_now"] is False
        assert {row["id"] for row in line.json()["jobs"]} <= set(ids)
        assert text.json()["job"] == {"gpus": 2}


def test_a_search_whose_sampler_takes_too_long_is_over_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aside, "SAMPLE_S", CPU_S)
    monkeypatch.setattr(searches, "sample", hungry_work.sample)
    monkeypatch.setattr(jobs, "check_installed", lambda: None)
    with serving(FAST) as client:
        terms = {"search": "optuna", "trials": 3, "metric": "loss"}
        for word in ("slow", "quick"):
            space = {**terms, "space": {"x": [word]}}
            more = {"max_parallel": 1, "hints": {"duration_s": 60.0}, "sweep": space}
            body = {"id": word, "command": ["train", "${x}"], **more}
            assert client.post(f"{API}/jobs", json=body).status_code == 201

        def told(word: str) -> Any:
            return client.get(f"{API}/sweeps/{word}/metrics").json()

        wait_until(lambda: len(told("quick")["jobs"]) == 3)
        trouble = wait_until(lambda: told("slow")["trouble"])

        assert "0.5 s of a processor" in trouble
        assert [trial["state"] for trial in told("slow")["jobs"]] == ["succeeded"]
        assert told("quick")["trouble"] == ""
