"""A real service before the judge: its state folder, its books before and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, bearer, get, serving, submit, token
from tests.waiting import wait_until
from weft.core.events.event import Foretold, Stopped
from weft.judge.judge import judge
from weft.judge.log_lines import LogLine, read_log
from weft.service import verdicts

ENGINE = "simulated:cluster=1x2:v100"


def test_a_state_folder_stands_before_the_judge_and_its_books_are_what_is_shown(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    hints = {"duration_s": 9000.0}
    with serving(ENGINE, state) as client:
        client.put(f"{API}/quotas", json={"weights": {"red": 3.0}, "own": {"blue": 1.0}})
        first = submit(client, command=["true"], gpus=2, hints=hints, tenant="red")
        second = submit(client, command=["true"], gpus=2, hints=hints, tenant="blue")
        wait_until(lambda: get(client, f"/jobs/{first}")["state"] == "running")
        start = get(client, f"/jobs/{second}/explain")["start"]
        client.delete(f"{API}/jobs/{first}")
        wait_until(lambda: get(client, f"/jobs/{second}")["state"] == "running")
        client.delete(f"{API}/jobs/{second}")
        wait_until(lambda: _left(state, second))
        shown = _shown(client, first, second)
        assert client.post(f"{API}/verdict").status_code == 202
        wait_until(lambda: get(client, "/verdict")["made"] is not None)
        page = get(client, "/verdict")
    with serving(ENGINE, state) as client:
        again = _shown(client, first, second)
        assert get(client, "/verdict") == page
        metrics = client.get("/metrics").text

    lines = [line for line in read_log(state) if isinstance(line, LogLine)]
    verdict = judge(read_log(state))

    assert verdict.wrong == 0
    (statement,) = [line.event for line in lines if isinstance(line.event, Foretold)]
    assert 0.0 < statement.high_s <= start["p90"] + 1.0  # less what passed until it was answered
    assert verdict.promises == {("start in its range", "fifo, full"): (1, 0)}  # a person made room
    for name in (first, second):
        account = verdict.books[name]
        ours = (account.gpu_s, account.restarts, account.submitted, account.started, account.ended)
        assert again["jobs"][name] == pytest.approx(ours)
        assert shown["jobs"][name] == pytest.approx(ours)
    for tenant in ("red", "blue"):
        books = verdict.tenants[tenant]
        sums = (float(books.jobs), books.gpu_s, books.entitled_s)
        assert books.entitled_s > 0.0
        assert again["tenants"][tenant] == pytest.approx(sums, abs=0.1)
        assert shown["tenants"][tenant] == pytest.approx(sums, abs=0.1)
    assert (page["wrong"], page["trouble"], page["next"]) == (0, "", None)
    assert [row["tenant"] for row in page["tenants"]] == ["blue", "red"]
    assert 'weft_verdict_findings{weight="wrong"} 0' in metrics


def test_a_log_is_judged_at_its_time_and_what_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "FIRST_S", 0.05)
    state = tmp_path / "state"
    with serving(ENGINE, state, verify_s=0.1) as client:
        submit(client, command=["true"], gpus=2)
        wait_until(lambda: get(client, "/verdict")["made"] is not None)
        first = get(client, "/verdict")
        assert (first["trouble"], first["wrong"]) == ("", 0)
        assert first["next"] == pytest.approx(first["made"] + 0.1)

        monkeypatch.setattr(verdicts, "judge_log", _unreadable)
        wait_until(lambda: get(client, "/verdict")["trouble"] != "")
        later = get(client, "/verdict")

    assert "there is no log at" in later["trouble"]
    assert (later["events"], later["end"]) == (first["events"], first["end"])


def test_only_those_who_see_all_tenants_read_the_verdict_and_admins_ask_for_it() -> None:
    with serving(ENGINE) as client:
        admin = token(client, "admin", "*")
        user, viewer = token(client, "user", "red", admin), token(client, "viewer", "*", admin)
        codes = [
            (client.request(method, f"{API}/verdict", headers=bearer(who))).status_code
            for method, who in (("GET", user), ("GET", viewer), ("POST", viewer), ("POST", admin))
        ]

    assert codes == [403, 200, 403, 409]  # without a state folder there is no log


def _unreadable(where: str, report: object) -> dict[str, Any]:
    from weft.app.insight.verdict import judge_log

    return judge_log(f"{where}/elsewhere", lambda _: None)


def _left(state: Path, job: str) -> bool:
    """Whether a job's last process is gone: GPU time is counted until then."""
    lines = (line for line in read_log(state) if isinstance(line, LogLine))
    return any(isinstance(line.event, Stopped) and line.event.job == job for line in lines)


def _shown(client: httpx.Client, *jobs: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """Numbers of jobs and tenants, as the API and with it the page has them."""
    accounts = get(client, "/accounting")
    tenants = {
        row["tenant"]: (row["jobs"], row["gpu_seconds"], row["entitled_gpu_seconds"])
        for row in accounts["tenants"]
    }
    rows = {row["id"]: row for row in accounts["jobs"]}
    words = ("gpu_seconds", "restarts", "submitted", "started", "ended")
    for job in jobs:
        shown = get(client, f"/jobs/{job}")
        assert all(shown[word] == rows[job][word] for word in words)
    return {
        "tenants": tenants,
        "jobs": {job: tuple(rows[job][word] for word in words) for job in jobs},
    }
