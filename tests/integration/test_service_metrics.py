"""Metrics of real jobs: from what a program says to the API, through a restart of the service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import API, serving
from tests.waiting import wait_until
from weft_client import Client

ENGINE = "local:cpu=true,slots=2,warm=false"
# A program that says the words of the wire itself, as a watcher does.
SAYS = """
import json, os, socket, sys
def say(*rows):
    names, steps, values = zip(*rows)
    body = {"type": "metrics", "job": os.environ["WEFT_JOB"], "rank": 0, "names": names,
            "attempt": int(os.environ["WEFT_ATTEMPT"]), "steps": steps, "values": values}
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["WEFT_AGENT"])
    line.sendall(json.dumps(body).encode() + b"\\n")
    line.close()
rate = float(sys.argv[1])
for epoch in range(5):
    say(("val_loss", epoch, rate / (epoch + 1)), ("acc", epoch, 1 - rate / (epoch + 1)))
say(("val_loss", 5, float("nan")), ("x" * 100, 1, 1), ("acc", -7, 1))
"""


def submit(client: httpx.Client, folder: Path, script: str, **more: Any) -> Any:
    (folder / "says.py").write_text(script)
    body = {"command": [sys.executable, "says.py", "0.5"], "workdir": str(folder), **more}
    answer = client.post(f"{API}/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def ended(client: httpx.Client, *jobs: str) -> bool:
    states = [client.get(f"{API}/jobs/{job}").json()["state"] for job in jobs]
    assert "failed" not in states
    return set(states) == {"succeeded"}


def test_metrics_are_kept_with_the_job_and_through_a_restart(tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path / "state", "fifo") as client:
        job = submit(client, tmp_path, SAYS, name="says")["id"]
        wait_until(lambda: ended(client, job))
        before = client.get(f"{API}/jobs/{job}/metrics").json()
        summary = client.get(f"{API}/jobs/{job}").json()["metrics"]
    with serving(ENGINE, tmp_path / "state", "fifo") as client:
        after = client.get(f"{API}/jobs/{job}/metrics").json()
        table = client.get(f"{API}/jobs/{job}/metrics", params={"format": "csv", "name": "acc"})
        events = client.get(f"{API}/jobs/{job}/events").json()["events"]

    assert before == after
    curves = {curve["name"]: curve for curve in after["metrics"]}
    assert set(curves) == {"val_loss", "acc"}
    assert curves["val_loss"]["values"] == [0.5, 0.25, 0.5 / 3, 0.125, 0.1, None]
    assert curves["val_loss"]["steps"] == [0, 1, 2, 3, 4, 5]
    assert summary["val_loss"] == {"step": 5, "value": None, "least": 0.1, "most": 0.5}
    rows = table.text.splitlines()
    assert rows[0] == "job,metric,step,value,at"
    assert rows[1].startswith(f"{job},acc,0.0,0.5,")
    assert sum(event["event"] == "Measured" for event in events) >= 1


def test_metrics_that_a_job_prints_are_kept_as_its_file_names_them(tmp_path: Path) -> None:
    script = """
        echo step=9 loss=9 >&2
        for i in 1 2 3; do
            echo "step=$i loss=0.$i lr=1"
            printf '{"iter": %d, "val_acc": 0.5}\\r' $i
        done
        printf loss=nan
    """
    fields = {"command": None, "run": script, "setup": "echo loss=7", "metrics": ["loss", "val_*"]}
    with serving(ENGINE, tmp_path / "state", "fifo") as client:
        job = submit(client, tmp_path, "", name="prints", **fields)["id"]
        wait_until(lambda: ended(client, job))
        metrics = client.get(f"{API}/jobs/{job}/metrics").json()["metrics"]
        file = client.get(f"{API}/jobs/{job}/file").json()["job"]
        refused = client.post(f"{API}/jobs", json={"run": "true", "metrics": ["loss=(.*)"]})

    curves = {curve["name"]: [*zip(curve["steps"], curve["values"])] for curve in metrics}  # noqa: B905
    assert curves == {
        "loss": [(9, 9), (1, 0.1), (2, 0.2), (3, 0.3), (4, None)],
        "val_acc": [(1, 0.5), (2, 0.5), (3, 0.5)],
    }
    assert file["metrics"] == ["loss", "val_*"]
    assert refused.status_code == 422
    assert refused.json()["field"] == "metrics.0"
    assert "'=' is in no metric's name; this is no regular expression" in refused.text


def test_prometheus_reads_the_metrics_that_it_names_of_running_jobs(tmp_path: Path) -> None:
    fields = {"command": None, "run": "echo loss=0.5 acc=nan lr=1; exec sleep 1000"}
    with serving(ENGINE, tmp_path / "state", "fifo") as client:
        job = submit(client, tmp_path, "", metrics="*", **fields)["id"]

        def read(*names: str) -> list[str]:
            text = client.get("/metrics", params={"metric": names}).raise_for_status().text
            return [line for line in text.splitlines() if line.startswith("weft_job_metric{")]

        wait_until(lambda: read("loss"))
        both, none = read("loss", "acc"), read()
        client.delete(f"{API}/jobs/{job}").raise_for_status()

    assert both == [f'weft_job_metric{{job="{job}",metric="loss"}} 0.5']
    assert none == []


def test_metrics_of_a_sweep_come_together_with_its_parameters(tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path / "state", "fifo") as client:
        command = [sys.executable, "says.py", "${lr}"]
        sweep = {"grid": {"lr": [0.5, 0.25]}}
        made = submit(client, tmp_path, SAYS, name="lrs", command=command, sweep=sweep)
        wait_until(lambda: ended(client, *made["jobs"]))

        query: dict[str, str | int] = {"name": "val_loss", "limit": 1, "points": 3}
        page = client.get(f"{API}/sweeps/{made['id']}/metrics", params=query).json()
        rest = client.get(
            f"{API}/sweeps/{made['id']}/metrics", params={**query, "after": page["next"]}
        ).json()
        none = client.get(f"{API}/sweeps/nothing/metrics")
        first = Client(str(client.base_url)).job(made["jobs"][0])
        curves, last = first.curves(), first.metrics()

    jobs = page["jobs"] + rest["jobs"]
    assert [job["parameters"]["lr"] for job in jobs] == ["0.5", "0.25"]
    assert [job["metrics"][0]["least"] for job in jobs] == [0.1, 0.05]
    assert [job["metrics"][0]["steps"] for job in jobs] == [[0, 2, 5]] * 2
    assert rest["next"] is None
    assert (page["metric"], page["goal"]) == ("", "")
    assert curves["val_loss"][:2] == [(0, 0.5), (1, 0.25)]
    assert last["acc"] == 1.0  # a value without a step is one more
    assert none.status_code == 404
    assert "no sweep" in none.json()["error"]
