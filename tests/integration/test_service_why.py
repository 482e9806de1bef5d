"""Why jobs wait and what would help, from a running service: one thing, everywhere the same."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, get, serving, submit
from tests.seeds import varied
from tests.waiting import wait_until

STILL = "simulated:cluster=2x4:a100+1x4:t4,speed=1"


def wait_for(client: httpx.Client, job: str, state: str) -> None:
    wait_until(lambda: get(client, f"/jobs/{job}")["state"] == state)


def one_reason(client: httpx.Client, job: str) -> str:
    """The reason by the job, its explanation, the list and what the page is sent."""
    reason: str = get(client, f"/jobs/{job}")["reason"]
    assert get(client, f"/jobs/{job}/explain")["reason"] == reason
    assert watched_reason(client, job) == reason
    listed = {row["id"]: row["reason"] for row in get(client, "/jobs")["jobs"]}
    assert listed[job] == reason
    return reason


def watched_reason(client: httpx.Client, job: str) -> str:
    """What the page shows: the first message of the stream that it follows."""
    with client.stream("GET", f"{API}/watch") as stream:
        line = next(line for line in stream.iter_lines() if line.startswith("data:"))
    body = json.loads(line.removeprefix("data:"))
    row = next(candidate for candidate in body["jobs"] if candidate["id"] == job)
    return str(body["reasons"].get(str(row["why"]), ""))


def test_jobs_page_and_explanation_never_differ_and_name_who_holds_what_is_needed() -> None:
    with serving(STILL, policy="weft") as client:
        client.put(f"{API}/quotas", json={"limits": {"poor": 1}})
        long = {"hints": {"duration_s": 9000}, "preemptible": False, "share": "never"}
        big = submit(client, name="big-train", gpus=8, kinds=["a100"], **long)
        wait_for(client, big, "running")
        sizes: list[dict[str, Any]] = [
            {"gpus": 8, "kinds": ["a100"], "nodes": 2},
            {"gpus": {"min": 4, "max": 8}, "kinds": ["a100"]},
            {"gpus": 2, "kinds": ["t4"], "tenant": "poor"},
            {"gpus": 1, "kinds": ["a100"], "tenant": "stranger"},
            {"gpus": 1, "after": {"ok": [big]}},
        ]
        jobs = [submit(client, **size) for size in sizes]
        held = submit(client, gpus=8, kinds=["a100"])
        client.post(f"{API}/jobs/{held}/suspend", json={"restart": True})

        wait_until(lambda: get(client, f"/jobs/{jobs[2]}")["reason"].startswith("over quota"))
        reasons = [one_reason(client, job) for job in (*jobs, held)]

        assert reasons[0] == (
            "waits for 8 a100 GPUs on 2 nodes; none is free: big-train (8) holds them"
        )
        assert reasons[1] == "waits for 4 a100 GPUs; none is free: big-train (8) holds them"
        assert reasons[3] == (
            "waits for 1 a100 GPU; none is free: 1 job of other tenants (8) holds them"
        )
        assert reasons[5].startswith("suspended by")
        assert not any(word in " ".join(reasons) for word in ("worth", "price", "e-0"))


PAST = ("moved", "gave_way", "reserved")  # what was so when it was decided, and may be no more


def draw_situation(client: httpx.Client, seed: int) -> None:
    """Jobs of all sorts, limits, a drained machine and a suspended job; more than there is room."""
    draw = Random(seed)
    client.put(f"{API}/quotas", json={"limits": {"poor": draw.choice([1, 2, 4])}})
    made: list[str] = []
    for _ in range(14):
        gpus = draw.choice([1, 1, 2, 4, 8])
        body: dict[str, Any] = {"gpus": gpus, "tenant": draw.choice(["rich", "poor"])}
        body["hints"] = {"duration_s": draw.uniform(1e6, 9e6)}
        body["kinds"] = draw.choice([[], ["a100"], ["t4"]]) if gpus <= 4 else []
        body["preemptible"] = draw.random() < 0.5
        if gpus == 1:
            body["share"] = draw.choice(["never", "allowed", 0.5])
        elif draw.random() < 0.3:
            body["gpus"] = {"min": 1, "max": gpus}
        if made and draw.random() < 0.2:
            body["after"] = {"ok": [draw.choice(made)]}
        made.append(submit(client, **body))
    client.post(f"{API}/nodes/{draw.choice(['a100-0', 't4-2'])}/drain")
    client.post(f"{API}/jobs/{draw.choice(made)}/suspend", json={"restart": True})


def last_said(client: httpx.Client, job: str) -> str:
    """What the last decision that spoke of a job said of it, if that is still meant."""
    for event in reversed(get(client, f"/jobs/{job}/events")["events"]):
        if job in event.get("changes", {}) or event["event"] in ("Suspended", "Stopped"):
            return ""
        if job in event.get("reasons", {}):
            past = event.get("blockers", {}).get(job) in PAST
            return "" if past else str(event["reasons"][job])
    return ""


@pytest.mark.parametrize(("policy", "seed"), [("weft", 1), ("fifo", 2), ("las", 3)])
def test_whatever_happened_jobs_explanation_page_and_events_say_the_same(
    policy: str, seed: int
) -> None:
    with serving("simulated:cluster=2x4:a100+1x4:t4,speed=0.001", policy=policy) as client:
        draw_situation(client, varied(seed))

        def differing() -> dict[str, list[str]]:
            """Of what waits: all that is said of it, where that is not one thing."""
            listed = get(client, "/jobs")["jobs"]
            waiting = [job for job in listed if job["state"] in ("pending", "suspended")]
            assert len(waiting) > 3
            texts = {}
            for job in waiting[-5:]:
                name = job["id"]
                reason = get(client, f"/jobs/{name}")["reason"]
                reasons = [reason, job["reason"], watched_reason(client, name)]
                if len({*reasons}) == 1:  # an explanation costs a second, so it is asked for last
                    reasons.append(get(client, f"/jobs/{name}/explain")["reason"])
                last = last_said(client, name)
                if not reason or {*reasons} != {reason} or last not in reason:
                    texts[name] = [*reasons, last]
            return texts

        differences: list[dict[str, list[str]]] = []

        def alike() -> bool:  # while something is being decided, a moment may differ
            differences.append(differing())
            return not differences[-1]

        with suppress(AssertionError):
            wait_until(alike, limit_s=120.0)
        assert not differences[-1]


def test_an_explanation_beside_three_hundred_jobs_has_a_reason_and_a_start() -> None:
    with serving("simulated:cluster=8x8:a100,speed=0.001", policy="weft") as client:
        for number in range(300):
            submit(client, gpus=(1, 2, 4, 8)[number % 4], hints={"duration_s": 900 + number})
        last = submit(client, name="last", gpus={"min": 16, "max": 64})

        why = get(client, f"/jobs/{last}/explain")

        assert why["reason"].startswith("waits for 16 GPUs; none is free: ")
        assert why["start"]["p50"] > 0.0
        assert isinstance(why["left_out"], list)  # which depends on the machine


def test_a_drained_machine_is_the_reason_and_using_it_again_the_cheapest_change() -> None:
    with serving(STILL) as client:
        client.post(f"{API}/nodes/t4-2/drain")
        job = submit(client, gpus=1, kinds=["t4"], share="never", priority="guaranteed")

        why = get(client, f"/jobs/{job}/explain")

        assert one_reason(client, job) == (
            "waits for 1 t4 GPU; the node that could run it is drained"
        )
        assert why["blocked_by"] == "away"
        assert "a100" in why["cheapest_change"]["text"]  # its owner can help it
        client.post(f"{API}/nodes/a100-0/drain")
        client.post(f"{API}/nodes/a100-1/drain")
        cheapest_change = get(client, f"/jobs/{job}/explain")["cheapest_change"]
        assert cheapest_change["fields"] == {"undrain": "t4-2"}
        assert "weft undrain t4-2" in cheapest_change["text"]


def test_a_quota_is_the_reason_in_a_word_and_raising_it_the_cheapest_change() -> None:
    with serving(STILL) as client:
        client.put(f"{API}/quotas", json={"limits": {"a": 1}})
        first, second = (submit(client, gpus=1, tenant="a", share="never") for _ in range(2))
        wait_for(client, first, "running")
        wait_until(
            lambda: get(client, f"/jobs/{second}/explain")["blocked_by"] != "turn"
        )  # decided

        why = get(client, f"/jobs/{second}/explain")

        assert one_reason(client, second).startswith("over quota: with its 1 GPU tenant 'a'")
        assert why["blocked_by"] == "quota"
        assert why["ahead"] == []  # no job's end starts it, but of its tenant's own
        assert why["decided_by"].startswith("quota, which keeps tenants")
        assert why["cheapest_change"]["fields"] == {"limits": {"a": 2.0}}
        client.put(f"{API}/quotas", json=why["cheapest_change"]["fields"])
        wait_for(client, second, "running")


def test_what_if_looks_ahead_with_more_machines_other_quotas_and_a_job_at_another_size() -> None:
    with serving(STILL) as client:
        held = [submit(client, gpus=4, hints={"duration_s": 3000}) for _ in range(3)]
        for job in held:
            wait_for(client, job, "running")
        mine = submit(client, name="mine", gpus=4, hints={"duration_s": 600})

        def ask(**change: Any) -> dict[str, Any]:
            answer = client.post(f"{API}/what-if", json={"start": "now", **change}).json()
            entry: dict[str, Any] = {outlook["id"]: outlook for outlook in answer["outlook"]}[mine]
            return entry

        more = ask(nodes="1x4:a100")
        assert more["start"]["p50"] > 0.0
        assert more["start_then"]["p50"] == 0.0
        shut = ask(limits={"default": 0})
        assert shut["start_then"] is None
        freed = ask(jobs=[{"id": held[0], "gpus": 2}])
        assert freed["start_then"] is not None
        assert client.post(f"{API}/what-if", json={"start": "now"}).status_code == 422


def test_a_plan_with_something_different() -> None:
    with serving(STILL) as client:
        job = {"gpus": 16}
        assert client.post(f"{API}/plan", json=job).status_code == 422

        body = {"job": job, "change": {"nodes": "2x8:h100"}}
        answer = client.post(f"{API}/plan/what-if", json=body).json()

        assert answer["starts_now"] is True
        assert answer["reason"] == "starts at once on 16 h100 GPUs"
