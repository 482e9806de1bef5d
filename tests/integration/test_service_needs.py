"""What needs a person, as a service answers it: to whom, in the metrics and by the doctor."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.integration.serving import API, STILL, bearer, get, serving, submit, token
from tests.waiting import wait_until
from weft.cli.commands.cluster.doctor import check_service
from weft.cli.connect.client import ServiceClient
from weft.service import needs_reader


def seen_by(client: httpx.Client, who: str, **query: str) -> list[tuple[str, str]]:
    """Kind and tenant of every need that a token reads; the loop may be late here."""
    answer = client.get(f"{API}/needs", params=query, headers=bearer(who)).raise_for_status()
    needs = answer.json()["needs"]
    return [(need["kind"], need["tenant"]) for need in needs if need["kind"] != "service"]


def test_everyone_sees_what_needs_them_and_no_trouble_of_another_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(needs_reader, "FRESH_S", 0.0)
    with serving(STILL) as client:
        assert seen_by(client, "") == []
        client.put(f"{API}/quotas", json={"limits": {"red": 1.0, "blue": 1.0}}).raise_for_status()
        for tenant in ("red", "blue"):
            submit(client, command=["true"], gpus=2, tenant=tenant)
        client.post(f"{API}/nodes/t4-2/drain").raise_for_status()
        wait_until(lambda: len(seen_by(client, "")) == 3)
        doctor = [*check_service(ServiceClient(str(client.base_url), ""))]
        metrics = client.get("/metrics").text
        admin = token(client, "admin", "*")
        red, viewer = token(client, "user", "red", admin), token(client, "viewer", "*", admin)

        every = [("node", ""), ("quota", "blue"), ("quota", "red")]
        assert sorted(seen_by(client, admin)) == sorted(seen_by(client, viewer)) == every
        assert seen_by(client, red) == [("quota", "red")]
        assert seen_by(client, admin, tenant="blue") == [("quota", "blue")]
        assert seen_by(client, red, tenant="blue") == []
        assert client.get(f"{API}/needs").status_code == 401

    text = "1 job of red can never start: its quota of 1 GPU is smaller than what each asks for. "
    assert [finding.text for finding in doctor if finding.text.startswith(text)]
    assert 'weft_needs{kind="quota"} 2' in metrics
    assert 'weft_needs{kind="node"} 1' in metrics
    assert 'weft_needs{kind="failed"} 0' in metrics


def test_a_job_that_failed_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs_reader, "FRESH_S", 0.0)
    with serving("local:cpu=true,slots=1,warm=false", tmp_path, "fifo") as client:
        failed = submit(client, command=["false"], name="breaks", tenant="red")
        wait_until(lambda: get(client, f"/jobs/{failed}")["state"] == "failed")

        (need,) = [need for need in get(client, "/needs")["needs"] if need["jobs"]]

    assert (need["kind"], need["count"], need["jobs"][0]["id"]) == ("failed", 1, failed)
    assert need["text"].startswith("breaks (red")
    assert f"weft logs {failed}" in need["step"]
