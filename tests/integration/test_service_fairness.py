"""Policies of fairness decide over real jobs, and the accounts show who received what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until

TWO = "local:slots=2,warm=false,cpu=true,name=here"
TURN_S = 1.0
ENDLESS: dict[str, Any] = {"command": ["sleep", "10000"], "preemptible": True}


def used(client: httpx.Client) -> dict[str, float]:
    return {
        tenant["tenant"]: tenant["gpu_seconds"] for tenant in get(client, "/accounting")["tenants"]
    }


def is_close(had: dict[str, float]) -> bool:
    """Within a tenth of three parts of four."""
    return abs(had["ada"] / sum(had.values()) / 0.75 - 1.0) <= 0.1


def test_gandiva_fair_gives_real_jobs_gpu_time_by_the_weight_of_their_tenants(
    tmp_path: Path,
) -> None:
    with serving(TWO, tmp_path / "state", policy=f"gandiva_fair:quantum={TURN_S:g}") as client:
        client.put(f"{API}/quotas", json={"weights": {"ada": 3.0, "bob": 1.0}})
        for i in range(2):
            for tenant in ("ada", "bob"):
                submit(client, id=f"{tenant}-{i}", tenant=tenant, **ENDLESS)
        # Starts take long on a busy machine, so how soon shares are right is not ours to say.
        wait_until(lambda: sum(used(client).values()) > 12 * TURN_S and is_close(used(client)))

        accounts, shares = get(client, "/accounting"), get(client, "/accounting/shares")

    entitled = {
        account["tenant"]: account["entitled_gpu_seconds"] for account in accounts["tenants"]
    }
    # Ada's first job may be alone for a while.
    assert 2.5 < entitled["ada"] / entitled["bob"] < 6.0
    drawn = {account["tenant"]: account for account in shares["tenants"]}
    assert drawn["ada"]["weight"] == 3.0
    assert 0.2 < max(drawn["bob"]["entitled_gpus"]) < 0.55
    assert len(drawn["ada"]["used_gpus"]) == len(shares["at"]) >= 1
    # The last interval is part of one, so sums say no more of who had how much.
    assert all(sum(drawn[tenant]["used_gpus"]) > 0.0 for tenant in ("ada", "bob"))


def test_themis_shockwave_allox_and_astraea_run_real_jobs_to_their_end(tmp_path: Path) -> None:
    policies = ("themis:lease=1", "shockwave:round=1", "allox", "astraea:lease=1,check=0.2")
    with serving(TWO, tmp_path / "state") as client:
        for number, policy in enumerate(policies):
            answer = client.put(f"{API}/policy", json={"policy": policy})
            assert answer.status_code == 200, answer.text
            jobs = [
                submit(client, id=f"{number}-{i}", command=["sleep", "0.5"], tenant=f"t{i % 2}")
                for i in range(3)
            ]
            wait_until(
                lambda jobs=jobs: all(  # type: ignore[misc]
                    get(client, f"/jobs/{job}")["state"] == "succeeded" for job in jobs
                )
            )
        accounts = get(client, "/accounting")

    assert {tenant["tenant"]: tenant["jobs"] for tenant in accounts["tenants"]} == {
        "t0": 8,
        "t1": 4,
    }
    assert 0.0 < accounts["jain"] <= 1.0
