"""Virtual clusters and priced moves of a running service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until
from weft.app.policy_file import read_policy_to_send
from weft.core.spec.part_spec import PartSpec

REAL = "simulated:cluster=2x4:a100,speed=1"
CELLS = "virtual_clusters:\n  a: {node: 1}\n  b: {node: 1}\n"


def state(client: httpx.Client, job: str) -> str:
    word: str = get(client, f"/jobs/{job}")["state"]
    return word


def node(client: httpx.Client, job: str) -> str:
    name: str = get(client, f"/jobs/{job}")["allocation"][0]["node"]
    return name


def named(tmp_path: Path, text: str, policy: str = "tiresias") -> str:
    path = tmp_path / "vcs.yaml"
    path.write_text(text)
    spec = read_policy_to_send(f"hived:file={path}|{policy}")
    assert isinstance(spec, PartSpec)
    return spec.text


def test_a_tenant_keeps_its_cells_whatever_another_one_queues(tmp_path: Path) -> None:
    with serving(REAL, policy=named(tmp_path, CELLS)) as client:
        small = [submit(client, gpus=1, tenant="a", share="never") for _ in range(6)]
        wait_until(lambda: [state(client, job) for job in small].count("running") == 4)
        spare = {"priority": "opportunistic", "preemptible": True, "share": "never"}
        loose = submit(client, gpus=2, tenant="a", **spare)
        wait_until(lambda: state(client, loose) == "running")

        mine = submit(client, gpus=4, tenant="b")

        wait_until(lambda: state(client, mine) == "running")
        wait_until(lambda: state(client, loose) == "preempted")
        held = {node(client, job) for job in small if state(client, job) == "running"}
        assert held == {"a100-0", "a100-1"} - {node(client, mine)}
        why = get(client, f"/jobs/{small[-1]}/explain")
        assert why["blocked_by"] == "cells"
        assert why["decided_by"].startswith("hived, ")
        assert "in the virtual cluster of tenant 'a': 4 of its 4 GPUs are in use" in why["reason"]
        assert client.put(f"{API}/policy", json={"policy": "fifo"}).status_code == 200


def test_virtual_clusters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    too_many = named(tmp_path, CELLS.replace("b: {node: 1}", "b: {node: 2}"))

    with serving(REAL) as client:
        answer = client.put(f"{API}/policy", json={"policy": too_many})
        unread = client.put(f"{API}/policy", json={"policy": "hived:file=/etc/passwd|fifo"})

    assert (answer.status_code, unread.status_code) == (422, 422)
    assert "a@node=1 and b@node=2: 3 a100 cells of level 'node' are assigned" in answer.text
    assert "read where the policy is named" in unread.text


def test_a_plan_shows_moves_with_their_price_and_a_moved_job_is_told_why() -> None:
    with serving(REAL, policy="defrag:min_run_s=0|tiresias") as client:
        ask: dict[str, Any] = {"share": "never", "preemptible": True, "hints": {"duration_s": 9000}}
        jobs = [submit(client, gpus=gpus, **ask) for gpus in (1, 1, 2, 1, 1, 2)]
        wait_until(lambda: all(state(client, job) == "running" for job in jobs))
        for job in (jobs[2], jobs[5]):
            client.delete(f"{API}/jobs/{job}")
        wait_until(lambda: [state(client, job) for job in jobs].count("cancelled") == 2)
        gang = {**ask, "gpus": 4, "model": "vgg16"}

        shown = client.post(f"{API}/plan", json=gang).json()
        started = submit(client, **gang)

        wait_until(lambda: state(client, started) == "running")
        assert shown["starts_now"]
        assert len(shown["moves"]) == 2
        for move in shown["moves"]:
            assert "GPU-hours lost" in move["text"]
            wait_until(lambda move=move: state(client, move["id"]) == "running")  # type: ignore[misc]
            why = get(client, f"/jobs/{move['id']}/explain")
            assert why["reason"].startswith("holds 1 a100 GPU; moved from a100-")
