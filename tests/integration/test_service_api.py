"""What people and programs ask of the service, on the simulated engine."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import API, FAST, STILL, get, serving, submit
from tests.waiting import wait_until
from weft.core.events.event import Decided, Event, Finished, NodeUp, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.protocols import EngineHealth
from weft.service.notify.webhooks import signature
from weft.sim.engine import SimulatedEngine
from weft.store.sqlite import SqliteStore


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with serving(STILL) as serving_client:
        yield serving_client


def test_a_job_runs_to_its_end_and_is_accounted_for() -> None:
    with serving(FAST) as client:
        job = submit(client, name="train", gpus=2, hints={"duration_s": 600}, tenant="vision")
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "succeeded")

        answer = get(client, f"/jobs/{job}")
        assert answer["name"] == "train"
        assert answer["restarts"] == 0
        assert answer["gpu_seconds"] == pytest.approx(1200.0, rel=0.5)
        (account,) = get(client, "/accounting")["tenants"]
        used = account["gpu_seconds"]
        assert (account["tenant"], account["jobs"], used) == ("vision", 1, answer["gpu_seconds"])
        assert account["entitled_gpu_seconds"] >= used
        assert account["received"] == pytest.approx(used / account["entitled_gpu_seconds"])
        table = client.get(f"{API}/accounting", params={"format": "csv"}).text.splitlines()
        assert table[0].startswith("id,name,tenant")
        assert table[1].startswith(f"{job},train,vision")
        story = [event["event"] for event in get(client, f"/jobs/{job}/events")["events"]]
        assert story == ["Submitted", "Decided", "Started", "Finished"]


def test_a_submit_may_be_repeated_but_not_changed(client: httpx.Client) -> None:
    assert submit(client, id="once", gpus=2) == submit(client, id="once", gpus=2) == "once"

    again = client.post(f"{API}/jobs", json={"id": "once", "gpus": 3})

    assert again.status_code == 409
    assert len(get(client, "/jobs")["jobs"]) == 1


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"gpu": 2}, "gpu", "did you mean 'gpus'?"),
        ({"priorty": "normal"}, "priorty", "did you mean 'priority'?"),
        ({"checkpoint": {"dirr": "x"}}, "checkpoint.dirr", "did you mean 'dir'?"),
        ({"gpus": {"mim": 1, "max": 2}}, "gpus.mim", "did you mean 'min'?"),
        ({"gpus": -1}, "gpus", "greater than or equal to 0"),
        ({"gpus": 0, "share": 0.5}, "", "a share below 1 is of one GPU"),
        ({"workdir": "../x"}, "workdir", "'..'"),
        ({"name": "a\nb"}, "name", "cannot be printed"),
        ({"kinds": ["h100"]}, "", "runs on h100 only"),
        ({"gpus": 100}, "", "there are 8"),
    ],
)
def test_a_mistake_is_answered_with_the_field_and_what_mends_it(
    client: httpx.Client, body: dict[str, Any], field: str, message: str
) -> None:
    answer = client.post(f"{API}/jobs", json=body)

    assert answer.status_code == 422
    problem = answer.json()
    assert problem["field"] == field
    assert message in problem["error"] + problem["hint"]


def test_a_body_that_is_not_json_is_said_to_be_none(client: httpx.Client) -> None:
    for body in (b"", b"{", b"\xff\xfe", b"[]", b"gpus=2"):
        answer = client.post(f"{API}/jobs", content=body)
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]


def test_a_body_that_is_too_long_is_refused_announced_or_not(client: httpx.Client) -> None:
    piece = b" " * (1 << 20)
    announced = client.post(f"{API}/jobs", content=piece * 9)
    streamed = client.post(f"{API}/jobs", content=iter([piece] * 9))

    assert announced.status_code == streamed.status_code == 413
    assert "longer than 2 MiB" in streamed.json()["error"]


def test_lists_come_in_pages_and_by_state(client: httpx.Client) -> None:
    made = [submit(client, gpus=4, kinds=["a100"]) for _ in range(5)]

    first = get(client, "/jobs", limit=2)
    rest = get(client, "/jobs", limit=100, after=first["next"])

    assert [j["id"] for j in first["jobs"] + rest["jobs"]] == made
    assert rest["next"] is None
    wait_until(lambda: len(get(client, "/jobs", state="running")["jobs"]) == 2)
    assert len(get(client, "/jobs", state="pending")["jobs"]) == 3
    client.delete(f"{API}/jobs/{made[4]}")
    assert _listed(client, "running,pending") == made[:4]
    assert _listed(client, "cancelled, pending", limit=1) == made[2:]
    assert _listed(client, "cancelled,failed") == made[4:]
    wrong = client.get(f"{API}/jobs", params={"state": "running,paused"})
    assert wrong.status_code == 422
    assert wrong.json()["error"] == "a job has no state 'paused'"
    assert "such as running,pending" in wrong.json()["hint"]


def _listed(client: httpx.Client, state: str, limit: int = 100) -> list[str]:
    """Jobs of all pages."""
    jobs, after = list[str](), None
    while True:
        query = {"state": state, "limit": limit, "after": after}
        page = get(client, "/jobs", **{key: value for key, value in query.items() if value})
        jobs += [job["id"] for job in page["jobs"]]
        if (after := page["next"]) is None:
            return jobs


def test_a_cancelled_job_gives_its_place_to_the_next(client: httpx.Client) -> None:
    first, second = (submit(client, gpus=8, kinds=["a100"]) for _ in range(2))

    assert client.delete(f"{API}/jobs/{first}").status_code == 202

    assert get(client, f"/jobs/{first}")["state"] == "cancelled"
    assert client.delete(f"{API}/jobs/{first}").status_code == 202
    assert client.delete(f"{API}/jobs/nobody").status_code == 404
    assert get(client, f"/jobs/{second}")["state"] in ("pending", "starting", "running")


def test_explain_says_why_who_is_in_front_and_what_would_help() -> None:
    with serving(STILL, policy="fifo:backfill=true") as client:
        for _ in range(2):
            submit(client, gpus=4, kinds=["a100"], hints={"duration_s": 600})
        wait_until(lambda: bool(get(client, "/cluster")["jobs"].get("running") == 2))
        ahead = submit(client, name="ahead", gpus=4, kinds=["a100"], hints={"duration_s": 600})
        job = submit(client, name="mine", gpus=3, kinds=["a100"])

        why = get(client, f"/jobs/{job}/explain")

        assert why["state"] == "pending"
        assert "; none is free" in why["reason"]
        assert why["blocked_by"] == "gpus"
        assert [front["id"] for front in why["ahead"] if front["state"] == "waiting"] == [ahead]
        assert why["numbers"]["free_by_kind"] == {"a100": 0, "t4": 4}
        assert "t4" in why["cheapest_change"]["text"]
        assert 0.0 < why["start"]["p10"] <= why["start"]["p50"] <= why["start"]["p90"]
        running = get(client, f"/jobs/{why['ahead'][-1]['id']}/explain")
        assert running["holds"][0]["kind"] == "a100"
        # What is advised is what happens.
        changed = {"gpus": 3, **why["cheapest_change"]["fields"]}
        assert client.post(f"{API}/plan", json=changed).json()["starts_now"] is True
        started = submit(client, **changed)
        wait_until(lambda: get(client, f"/jobs/{started}")["state"] == "running")


def test_plan_shows_where_a_job_would_go_and_queues_nothing(client: httpx.Client) -> None:
    answer = client.post(f"{API}/plan", json={"gpus": 4, "kinds": ["t4"]}).json()

    assert answer["starts_now"] is True
    assert answer["allocation"] == [
        {"node": "t4-2", "gpus": [0, 1, 2, 3], "kind": "t4", "share": 1.0, "cpus": 32.0}
    ]
    assert get(client, "/jobs")["jobs"] == []


def test_the_policy_can_be_changed_and_a_wrong_one_is_answered(client: httpx.Client) -> None:
    assert client.put(f"{API}/policy", json={"policy": "las:by=time"}).status_code == 200
    decides = {
        "policy": "las:by=time",
        "spec": {"name": "las", "params": {"by": "time"}, "wrappers": []},
        "trouble": "",
    }
    assert get(client, "/policy") == decides
    assert client.put(f"{API}/policy", json={"policy": decides["spec"]}).json() == decides
    wrong = client.put(f"{API}/policy", json={"policy": "strf"})
    assert wrong.status_code == 422
    assert "did you mean 'srtf'" in wrong.json()["error"]
    assert get(client, "/policy") == decides


def test_what_if_replays_the_log_under_both_policies() -> None:
    with serving(FAST) as client:
        for length in (3000, 60, 60):
            submit(client, gpus=8, kinds=["a100"], hints={"duration_s": length})
        wait_until(lambda: get(client, "/cluster")["jobs"].get("succeeded") == 3)

        answer = client.post(f"{API}/what-if", json={"policy": "srtf"}).json()

        policies = answer["policies"]
        assert set(policies) == {"fifo", "srtf"}
        assert answer["jobs"] == 3
        assert policies["srtf"]["avg_jct_h"] <= policies["fifo"]["avg_jct_h"]
        assert client.post(f"{API}/what-if", json={"policy": "nope"}).status_code == 422


def test_quotas_hold_and_are_said_and_survive_a_restart(tmp_path: Path) -> None:
    with serving(STILL, tmp_path) as client:
        rules = {"limits": {"a": 4, "b@t4": 0}, "weights": {"a": 2}}
        assert client.put(f"{API}/quotas", json=rules).json()["limits"] == rules["limits"]
        first, second = (submit(client, gpus=3, tenant="a", kinds=["a100"]) for _ in range(2))
        third = submit(client, gpus=1, tenant="b", kinds=["t4"])
        wait_until(lambda: get(client, f"/jobs/{first}")["state"] == "running")

        for job, what in ((second, "more than 4 GPUs"), (third, "more than the 0 t4 GPUs")):
            wait_until(lambda job=job: "over quota:" in get(client, f"/jobs/{job}")["reason"])  # type: ignore[misc]
            answer = get(client, f"/jobs/{job}")
            assert answer["state"] == "pending"
            assert answer["reason"].startswith("over quota:")
            assert what in answer["reason"]
        assert get(client, "/quotas")["held"] == {"a": 3.0}
        assert client.put(f"{API}/quotas", json={"limits": {"a|b": 1}}).status_code == 422
    with serving(STILL, tmp_path) as client:
        assert get(client, "/quotas")["limits"] == {"a": 4.0, "b@t4": 0.0}
        client.put(f"{API}/quotas", json={})
        wait_until(lambda: get(client, f"/jobs/{second}")["state"] == "running")


def test_a_drained_node_is_emptied_and_comes_back(client: httpx.Client) -> None:
    job = submit(client, gpus=4, kinds=["t4"])
    wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "running")

    assert client.post(f"{API}/nodes/t4-2/drain").status_code == 200

    states = {n["id"]: n["state"] for n in get(client, "/nodes")["nodes"]}
    assert states == {"a100-0": "up", "a100-1": "up", "t4-2": "drained"}
    assert get(client, f"/jobs/{job}")["state"] != "running"
    assert client.post(f"{API}/nodes/nope/drain").status_code == 404
    assert client.post(f"{API}/nodes/t4-2/undrain").status_code == 200


def test_events_are_replayed_from_a_number_and_then_followed(client: httpx.Client) -> None:
    job = submit(client, gpus=1)
    wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "running")
    whole = read_stream(client, {"since": 0, "follow": False})
    middle = whole[len(whole) // 2]["seq"]

    rest = read_stream(client, {"follow": False}, {"Last-Event-ID": str(middle)})

    assert [event["seq"] for event in rest] == [o["seq"] for o in whole if o["seq"] > middle]
    assert any(
        event.get("job", {}).get("id") == job for event in whole if event["event"] == "Submitted"
    )
    with client.stream("GET", f"{API}/events", params={"since": whole[-1]["seq"]}) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        new = submit(client, gpus=1)
        data_line = next(line for line in lines if line.startswith("data:"))
        assert json.loads(data_line[5:])["job"]["id"] == new


def read_stream(
    client: httpx.Client, query: dict[str, Any], headers: dict[str, str] | None = None
) -> list[Any]:
    answer = client.get(f"{API}/events", params=query, headers=headers or {})
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]


def test_metrics_are_lines_that_prometheus_reads(client: httpx.Client) -> None:
    submit(client, gpus=2, tenant="nlp")
    line = re.compile(r'(# (HELP|TYPE) weft_\w+ .+)|(weft_\w+(\{\w+="[^"\n]*"\})? [-+0-9.e]+)')

    lines = client.get("/metrics").text.splitlines()

    assert all(line.fullmatch(text) for text in lines), lines
    assert 'weft_gpus{kind="a100"} 8' in lines


def test_webhooks_tell_signed_state_changes_and_try_again() -> None:
    heard: list[tuple[dict[str, str], bytes]] = []
    refusals = iter([500, 500])

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = next(refusals, 200)
            if status == 200:
                heard.append((dict(self.headers), body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        with serving(FAST) as client:
            url = f"http://127.0.0.1:{receiver.server_port}/hook"
            made = client.post(
                f"{API}/webhooks", json={"url": url, "states": ["running", "succeeded"]}
            ).json()
            job = submit(client, gpus=1, hints={"duration_s": 60})
            wait_until(lambda: len(heard) == 2)
    finally:
        receiver.shutdown()
        receiver.server_close()
    changes = [json.loads(body) for _, body in heard]
    assert [change["state"] for change in changes] == ["running", "succeeded"]
    assert {change["job"]["id"] for change in changes} == {job}
    headers, body = heard[0]
    good = signature(made["secret"], headers["X-Weft-Timestamp"], body)
    assert headers["X-Weft-Signature"] == f"sha256={good}"


def test_a_webhook_that_never_answers_is_in_nobodys_way() -> None:
    with serving(FAST) as client, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        made = client.post(f"{API}/webhooks", json={"url": url})
        assert made.status_code == 201
        submit(client, gpus=1, hints={"duration_s": 600})
        line, _ = silent.accept()  # it is told of the first, and says nothing

        others = [submit(client, gpus=1, hints={"duration_s": 600}) for _ in range(20)]

        wait_until(lambda: len(get(client, "/jobs", state="succeeded")["jobs"]) > len(others))
        line.close()
        bad = client.post(f"{API}/webhooks", json={"url": "file:///etc/passwd"})
        assert bad.status_code == 422
        assert client.delete(f"{API}/webhooks/{made.json()['id']}").status_code == 200
        assert get(client, "/webhooks") == {"webhooks": []}


def test_health_and_the_documents_are_there(client: httpx.Client) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    page = client.get("/docs")
    assert page.status_code == 200
    assert "openapi.json" in page.text
    assert "https://" not in page.text  # it works where nothing else can be reached
    assert client.get("/openapi.json").json()["info"]["title"] == "Weft"
    assert client.get("/nothing").json()["error"]
    assert client.request("PATCH", f"{API}/jobs").status_code == 405


def test_goodput_is_that_of_running_jobs(tmp_path: Path) -> None:
    store, job = SqliteStore(tmp_path / "events.db"), JobId("told")
    on = Allocation((Slice(NodeId("n"), (0,)),))
    story: list[Event] = [
        NodeUp(Node(NodeId("n"), "a100", 1)),
        Submitted(Job(job)),
        Decided(1, {job: on}),
        Started(job, 1),
        Reported(job, 1, Report(goodput=40.0)),
        Finished(job, 1),
    ]
    store.append([(1.0 + i, event) for i, event in enumerate(story)])
    store.close()

    with serving(STILL, tmp_path) as client:
        cluster = get(client, "/cluster")

    assert (cluster["jobs"], cluster["goodput"]) == ({"succeeded": 1}, 0.0)


def test_a_node_that_just_came_back_is_listed_before_it_is_used(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cluster no longer says that it is out of use, and the event is on its way."""
    back = EngineHealth(up=(Node(NodeId("back"), "a100", 4), Node(NodeId("n0"), "a100", 4)))
    monkeypatch.setattr(SimulatedEngine, "health", back)

    nodes = {node["id"]: node["state"] for node in get(client, "/nodes")["nodes"]}

    assert nodes["back"] == "down"
    assert [*nodes.values()].count("up") == 3
