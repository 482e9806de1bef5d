from __future__ import annotations

from typing import Any

import pytest
from packages.weft.tests.cli.jobs import job

from tests.cli.stand_in import Asked, stand_in
from tests.clock import Clock
from weft.cli.connect import follow
from weft.cli.connect.client import ServiceClient, ServiceUnreachable
from weft.cli.connect.follow import Follower, exit_code
from weft.service.responses.job_row import StateWord

PRINTED = {"1": b"one\ntwo\n", "2": b"three\n", "3": b"four\n"}


def logs(asked: Asked) -> tuple[int, Any]:
    whole = PRINTED.get(asked.query["attempt"])
    if whole is None:
        return 404, {"error": "no such attempt"}
    return 200, whole[int(asked.query["offset"]) :][:5]


def test_output_is_whole_over_restarts_even_those_nobody_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "POLL_S", 0.0)
    states = [
        job("j", "pending", attempt=0),
        job("j", "running", attempt=1, gpus=(0,)),
        job("j", "running", attempt=3, gpus=(0, 1)),
        job("j", "succeeded", attempt=3),
    ]
    wrote, notes = bytearray(), list[str]()

    with stand_in(
        {"GET /jobs/j": [(200, state) for state in states], "GET /jobs/j/logs": logs}
    ) as s:
        ended = Follower(ServiceClient(s.url, ""), "j", wrote.extend, notes.append, attempt=1)
        last = ended.until_the_end()

    assert bytes(wrote) == b"one\ntwo\nthree\nfour\n"
    assert last.state == "succeeded"
    assert notes == [
        "pending",
        "running on 1 cpu (ada:0)",
        "running on 2 cpu (ada:0-1)",
        "succeeded",
    ]


class Patience:
    """Time for a follower, which passes while it sleeps and at no other moment."""

    def __init__(self) -> None:
        self.monotonic, self.slept = Clock(), list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.monotonic.now += seconds


@pytest.mark.parametrize(
    ("patience_s", "waits", "notes"),
    [(-1.0, 0, []), (1.0, 4, ["the service does not answer; waiting for it, jobs keep running"])],
)
def test_a_service_that_is_away_is_waited_for(
    patience_s: float, waits: int, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    time, noted = Patience(), list[str]()
    monkeypatch.setattr(follow, "time", time)
    monkeypatch.setattr(follow, "PATIENCE_S", patience_s)

    with pytest.raises(ServiceUnreachable):
        Follower(ServiceClient("http://127.0.0.1:1", ""), "j", print, noted.append).until_the_end()

    assert noted == notes
    assert time.slept == [follow.POLL_S] * waits


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("succeeded", "", 0),
        ("failed", "rank 1 ended with exit code 7: boom", 7),
        ("failed", "rank 0 was killed by SIGKILL", 1),
        ("failed", "rejected: too large", 1),
        ("cancelled", "cancelled", 130),
    ],
)
def test_the_exit_code_is_the_jobs(state: StateWord, reason: str, code: int) -> None:
    assert exit_code(job("j", state, reason=reason)) == code


def marked(printed: dict[str, bytes], up_to: int, first: int = 1) -> bytes:
    def answer(asked: Asked) -> tuple[int, Any]:
        whole = printed.get(asked.query["attempt"])
        return (
            (404, {"error": "none"})
            if whole is None
            else (200, whole[int(asked.query["offset"]) :])
        )

    wrote = bytearray()
    with stand_in({"GET /jobs/j/logs": answer}) as s:
        follower = Follower(
            ServiceClient(s.url, ""), "j", wrote.extend, print, attempt=first,
            mark=lambda number: wrote.extend(b"<%d>" % number),
        )  # fmt: skip
        follower.catch_up(up_to)
        follower.catch_up(up_to)
    return bytes(wrote)


def test_attempts_are_told_apart_by_marks_on_lines_of_their_own() -> None:
    printed = {"1": b"one\n", "2": b"half a li", "4": b"four\n"}

    assert marked(printed, 4) == b"<1>one\n<2>half a li\n<4>four\n"


def test_a_single_attempt_needs_no_mark() -> None:
    assert marked({"1": b"one\n"}, 1) == b"one\n"
    assert marked({"1": b"one\n", "2": b"two\n"}, 2, first=2) == b"two\n"
