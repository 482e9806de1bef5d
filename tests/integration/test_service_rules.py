"""Quotas that are lent, reservations and drains of a running service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until

STILL = "simulated:cluster=2x4:a100,speed=0.001"  # nothing ends while a test looks
REAL = "simulated:cluster=2x4:a100,speed=1"


def state(client: httpx.Client, job: str) -> str:
    word: str = get(client, f"/jobs/{job}")["state"]
    return word


def nodes(client: httpx.Client) -> dict[str, Any]:
    return {node["id"]: node for node in get(client, "/nodes")["nodes"]}


def test_idle_quota_is_lent_and_taken_back_and_survives_a_restart(tmp_path: Path) -> None:
    rules = {"own": {"a": 4, "b": 4}, "parents": {"a": "lab"}, "min_run_s": 0}
    with serving(REAL, tmp_path) as client:
        assert client.put(f"{API}/quotas", json=rules).json()["own"] == rules["own"]
        lent = [submit(client, gpus=4, tenant="a", preemptible=True) for _ in range(2)]
        wait_until(lambda: [state(client, job) for job in lent] == ["running"] * 2)

        mine = submit(client, gpus=2, tenant="b")

        wait_until(lambda: state(client, mine) == "running")
        wait_until(lambda: sorted(state(client, job) for job in lent) == ["preempted", "running"])
        gone = next(job for job in lent if state(client, job) == "preempted")
        why = get(client, f"/jobs/{gone}/explain")
        assert why["blocked_by"] == "reclaimed"
        assert why["reason"].startswith("gave way: 4 a100 GPUs went back to tenant 'b'")
    with serving(REAL, tmp_path) as client:
        answer = get(client, "/quotas")
        assert (answer["own"], answer["parents"]) == ({"a": 4.0, "b": 4.0}, {"a": "lab"})


def test_one_gpu_is_drained_and_the_others_of_its_node_are_used() -> None:
    with serving(STILL) as client:
        answer = client.post(f"{API}/nodes/a100-0/drain", params={"gpus": "1"})
        assert answer.json() == {"done": "a100-0:1 is drained", "changed": True}

        jobs = [submit(client, gpus=1, share="never") for _ in range(7)]
        wait_until(lambda: all(state(client, job) == "running" for job in jobs))
        last = submit(client, gpus=1, share="never")

        assert nodes(client)["a100-0"]["held_gpus"] == [0, 2, 3]
        assert nodes(client)["a100-0"]["drained_gpus"] == [1]
        why = get(client, f"/jobs/{last}/explain")
        assert (why["blocked_by"], state(client, last)) == ("reserved", "pending")
        client.post(f"{API}/nodes/a100-0/undrain")
        wait_until(lambda: state(client, last) == "running")
        wrong = client.post(f"{API}/nodes/a100-0/drain", params={"gpus": "9"})
        assert wrong.status_code == 422


def test_a_drain_lets_running_jobs_end_if_asked_to() -> None:
    with serving(STILL) as client:
        job = submit(client, gpus=4)
        wait_until(lambda: state(client, job) == "running")
        node = get(client, f"/jobs/{job}")["allocation"][0]["node"]

        client.post(f"{API}/nodes/{node}/drain", params={"when_done": True})

        assert nodes(client)[node]["state"] == "draining"
        later = submit(client, gpus=4)
        wait_until(lambda: state(client, later) == "running")
        assert get(client, f"/jobs/{later}")["allocation"][0]["node"] != node
        assert state(client, job) == "running"
        client.delete(f"{API}/jobs/{job}")
        wait_until(lambda: nodes(client)[node]["state"] == "drained")


def test_a_node_is_kept_for_a_tenant_and_maintenance_stops_who_is_there() -> None:
    with serving(REAL) as client:
        now = get(client, "/cluster")["now"]
        body = {"nodes": ["a100-1"], "tenant": "b"}
        assert client.put(f"{API}/reservations/course", json=body).json()["in_force"] is True
        red = [submit(client, gpus=4, tenant="a") for _ in range(2)]
        blue = submit(client, gpus=4, tenant="b")

        wait_until(lambda: state(client, blue) == "running")
        wait_until(lambda: sorted(state(client, job) for job in red) == ["pending", "running"])
        waits = next(job for job in red if state(client, job) == "pending")
        client.put(
            f"{API}/reservations/repair", json={"nodes": ["a100-0"], "start": time.time() + 2}
        )
        runs = next(job for job in red if job != waits)
        wait_until(lambda: state(client, runs) != "running")

        listed = get(client, "/reservations")["reservations"]
        assert [reservation["name"] for reservation in listed] == ["course", "repair"]
        assert client.delete(f"{API}/reservations/repair").status_code == 200
        assert client.delete(f"{API}/reservations/none").status_code == 404
        wait_until(lambda: "running" in {state(client, job) for job in red})
        past = {"nodes": ["a100-0"], "end": now - 5}
        assert client.put(f"{API}/reservations/past", json=past).status_code == 422


def test_a_job_that_failed_at_its_start_is_tried_on_another_node_while_one_is_free() -> None:
    with serving("simulated:cluster=2x1:a100,speed=1") as client:
        hints = {"duration_s": 5_000, "fails_at_s": 0.2}
        job = submit(client, gpus=1, share="never", hints=hints, retries=1)
        wait_until(
            lambda: (
                (now := get(client, f"/jobs/{job}"))["attempt"] == 2 and now["state"] == "running"
            )
        )

        events = get(client, f"/jobs/{job}/events")["events"]
        held = [event["changes"][job] for event in events if job in event.get("changes", ())]
        tried = [to["slices"][0]["node"] for to in held if to]
        assert len(tried) == 2 and len({*tried}) == 2, events


def test_a_node_where_jobs_fail_at_their_start_is_set_aside_and_can_be_used_again() -> None:
    with serving("simulated:cluster=2x1:a100,speed=1") as client:
        hold = submit(client, gpus=1, kinds=["a100"], share="never")
        wait_until(lambda: state(client, hold) == "running")
        good = get(client, f"/jobs/{hold}")["allocation"][0]["node"]
        bad = next(name for name in nodes(client) if name != good)
        hints = {"duration_s": 50, "fails_at_s": 0.2}
        for tenant in ("red", "red", "red", "blue"):
            assert nodes(client)[bad]["state"] == "up"  # one person's jobs prove nothing
            job = submit(client, gpus=1, share="never", hints=hints, retries=0, tenant=tenant)
            wait_until(lambda job=job: state(client, job) == "failed")  # type: ignore[misc]

        wait_until(lambda: nodes(client)[bad]["state"] == "set aside")

        waits = submit(client, gpus=1, share="never")
        assert state(client, waits) == "pending"
        client.post(f"{API}/nodes/{bad}/undrain")
        wait_until(lambda: state(client, waits) == "running")
