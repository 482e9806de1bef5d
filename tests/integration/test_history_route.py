"""The cluster over time as the service answers it: the accounts' numbers, for those who may see."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.serving import API, bearer, get, serving, submit, token
from tests.waiting import wait_until

ENGINE = "simulated:cluster=1x4:a100+1x4:h200,speed=3000"


def gpu_seconds(history: dict[str, Any], tenant: str) -> float:
    return sum(
        float(used * seconds)
        for use in history["use"]
        if use["tenant"] == tenant
        for used, seconds in zip(use["used"], history["seconds"], strict=True)
    )


def ended(client: httpx.Client, *jobs: str) -> bool:
    return all(get(client, f"/jobs/{job}")["state"] == "succeeded" for job in jobs)


def test_gpu_hours_over_time_are_those_of_the_accounts() -> None:
    with serving(ENGINE, policy="fifo") as client:
        names = [
            submit(client, gpus=gpus, tenant=tenant, hints={"duration_s": 900.0 * gpus})
            for tenant, gpus in (("red", 1), ("blue", 4), ("red", 3), ("blue", 2), ("green", 4))
        ]
        wait_until(lambda: ended(client, *names))

        history = get(client, "/history", since=0)
        accounts = get(client, "/accounting")["tenants"]

    assert {account["tenant"] for account in accounts} == {"red", "blue", "green"}
    for account in accounts:
        shown = gpu_seconds(history, account["tenant"])
        assert shown == pytest.approx(account["gpu_seconds"], rel=1e-6)
    of_all = sum(
        used * seconds
        for kind in history["kinds"]
        for used, seconds in zip(kind["used"], history["seconds"], strict=True)
    )
    assert of_all == pytest.approx(sum(each["gpu_seconds"] for each in accounts), rel=1e-6)
    assert {kind["kind"]: max(kind["gpus"]) for kind in history["kinds"]} == {
        "a100": 4.0,
        "h200": 4.0,
    }
    assert sum(sum(queue["started"]) for queue in history["queues"]) == len(names)
    assert sum(history["decisions"]) >= 1


def test_a_tenant_sees_its_own_jobs_and_what_all_of_them_hold() -> None:
    with serving(ENGINE, policy="fifo") as client:
        admin = token(client, "admin")
        mine = token(client, "user", "red", by=admin)
        for tenant in ("red", "blue"):
            body = {"gpus": 2, "tenant": tenant, "hints": {"duration_s": 1e7}}
            client.post(f"{API}/jobs", json=body, headers=bearer(admin)).raise_for_status()

        def read(who: str) -> dict[str, Any]:
            answer: dict[str, Any] = client.get(f"{API}/history", headers=bearer(who)).json()
            return answer

        wait_until(lambda: {use["tenant"] for use in read(admin)["use"]} == {"red", "blue"})
        client.put(f"{API}/quotas", json={"limits": {"blue": 4.0}}, headers=bearer(admin))
        client.put(f"{API}/policy", json={"policy": "las"}, headers=bearer(admin))
        seen, all_of_it = read(mine), read(admin)

    assert {use["tenant"] for use in seen["use"]} == {"red"}
    assert {queue["tenant"] for queue in seen["queues"]} == {"red"}
    assert sum(kind["used"][-1] for kind in seen["kinds"]) > seen["use"][0]["used"][-1]
    assert [mark["what"] for mark in all_of_it["marks"]] == ["policy", "rules", "policy"]
    assert [mark["about"] for mark in seen["marks"]] == ["fifo", "las"]
    assert seen["marks"][1]["by"]


def test_a_node_says_who_drained_it_and_why_also_after_it_is_back() -> None:
    with serving(ENGINE, policy="fifo") as client:
        path = f"{API}/nodes/h200-1"
        client.post(f"{path}/drain", params={"why": "a fan is loud"}).raise_for_status()
        (out,) = get(client, "/nodes/h200-1/history")["out"]
        client.post(f"{path}/undrain").raise_for_status()
        client.post(f"{path}/drain", params={"gpus": "1-2", "why": "tests"}).raise_for_status()
        history = get(client, "/nodes/h200-1/history")
        other = get(client, "/nodes/a100-0/history")

    assert (out["what"], out["by"], out["why"]) == ("drained", "an admin", "a fan is loud")
    assert [(mark["what"], mark["about"]) for mark in history["marks"]] == [
        ("drained", "h200-1"),
        ("back", "h200-1"),
        ("drained", "h200-1:1-2"),
    ]
    assert [mark["why"] for mark in history["out"]] == ["tests"]
    assert other == {"marks": [], "out": []}
