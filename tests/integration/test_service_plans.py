"""A service chooses execution plans for a real GPT on CPU ranks, and learns which is fast."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from tests.integration.serving import API, STILL, get, serving, submit
from tests.waiting import wait_until

LOCAL = "local:slots=2,warm=false,cpu=true,name=here"
SCRIPT = Path(__file__).parents[2] / "examples" / "train" / "gpt_plans.py"
PLANS = ["tp2", "zero2"]


def ended(client: httpx.Client, job: str) -> bool:
    return get(client, f"/jobs/{job}")["state"] in ("succeeded", "failed")


def train(
    client: httpx.Client, name: str, folder: Path, plans: list[str] = PLANS, steps: int = 4
) -> str:
    """Submit a training of two ranks; the plan that it was told."""
    submit(
        client,
        id=name,
        gpus=2,
        command=[sys.executable, str(SCRIPT), str(steps)],
        workdir=str(folder),
        checkpoint={"dir": str(folder / name)},
        plans=plans,
    )
    wait_until(lambda: bool(get(client, f"/jobs/{name}")["plan"]) or ended(client, name))
    plan: str = get(client, f"/jobs/{name}")["plan"]
    return plan


def test_a_real_gpt_runs_the_plan_that_was_chosen(tmp_path: Path) -> None:
    with serving(LOCAL, tmp_path / "state", policy="weft") as client:
        plan = train(client, "one", tmp_path)
        wait_until(lambda: ended(client, "one"))

        job, log = get(client, "/jobs/one"), client.get(f"{API}/jobs/one/logs").text
        events = {event["event"]: event for event in get(client, "/jobs/one/events")["events"]}

        assert job["state"] == "succeeded", log
        assert plan == "dp1-tp2"
        assert job["plans"] == events["Submitted"]["job"]["plans"] == PLANS
        assert events["Decided"]["changes"]["one"]["plan"] == plan
        assert "tp2" in log


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["weft", "rubick:interval=2"])
def test_the_next_job_of_a_program_tries_a_plan_that_nobody_ran(
    policy: str, tmp_path: Path
) -> None:
    with serving(LOCAL, tmp_path / "state", policy=policy) as client:
        first = train(client, "one", tmp_path)
        wait_until(lambda: ended(client, "one"))
        second = train(client, "two", tmp_path)
        wait_until(lambda: ended(client, "two"))

        jobs = [get(client, f"/jobs/{name}") for name in ("one", "two")]
        logs = [client.get(f"{API}/jobs/{name}/logs").text for name in ("one", "two")]

        assert [job["state"] for job in jobs] == ["succeeded"] * 2, logs
        assert (first, second) == ("dp1-tp2", "dp2-zero2")
        assert "tp2" in logs[0]
        assert "zero2" in logs[1]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["weft:wake_s=2", "rubick:interval=2"])
def test_a_running_gpt_changes_its_plan_on_the_gpus_that_it_has(
    policy: str, tmp_path: Path
) -> None:
    plans = ["ga8-gc", "zero3"]
    with serving(LOCAL, tmp_path / "state", policy=policy) as client:
        first = train(client, "one", tmp_path, plans, steps=1_000_000)
        wait_until(lambda: get(client, "/jobs/one")["attempt"] == 2 or ended(client, "one"))
        wait_until(lambda: "loss" in read_log(client, 2) or ended(client, "one"))
        logs, events = [read_log(client, n) for n in (1, 2)], get(client, "/jobs/one/events")
        client.delete(f"{API}/jobs/one")
        wait_until(lambda: get(client, "/jobs/one")["state"] == "cancelled")

    decided = [event for event in events["events"] if event["event"] == "Decided"][:2]
    given = [event["changes"]["one"] for event in decided]
    assert [on["plan"] for on in given] == [first, "dp2-zero3"] == ["dp2-ga8-gc", "dp2-zero3"]
    assert given[0]["slices"] == given[1]["slices"]
    why = "plan dp2-zero3 instead of dp2-ga8-gc on the same GPUs: "
    assert decided[1]["reasons"]["one"].startswith(why)
    assert "ga8-gc  loss" in logs[0]
    assert "training resumes from" in logs[1]
    assert "zero3  loss" in logs[1]


def read_log(client: httpx.Client, attempt: int) -> str:
    """Of the first rank; empty before it printed anything."""
    answer = client.get(f"{API}/jobs/one/logs", params={"attempt": attempt})
    return answer.text if answer.status_code == 200 else ""


def test_plans_that_nobody_can_read_or_run_are_refused() -> None:
    with serving(STILL) as client:
        for plans, why in (
            (["tp"], "cannot read"),
            (["tp8"], "multiple of 8"),
            (["dp", "dp"], "twice"),
        ):
            body = {"gpus": 2, "command": ["true"], "plans": plans}
            answer = client.post(f"{API}/jobs", json=body)

            assert answer.status_code in (400, 422), answer.text
            assert why in answer.text
