"""Metrics that dashboards need, and a dashboard that asks for what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until

DASHBOARD = Path(__file__).resolve().parents[2] / "deploy" / "grafana-dashboard.json"
ALERTS = DASHBOARD.with_name("prometheus-alerts.yml")
NAME = re.compile(r"\bweft_[a-z_]+")
SAMPLE = re.compile(r"(weft_[a-z_]+)(\{[^}]*\})? (\S+)")


def samples(text: str) -> dict[str, float]:
    matches = (SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))
    return {f"{match[1]}{match[2] or ''}": float(match[3]) for match in matches if match}


def test_every_query_of_the_dashboard_asks_for_a_metric_that_is_exported() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {name for panel in panels for t in panel["targets"] for name in NAME.findall(t["expr"])}
    with serving() as client:
        text = client.get("/metrics").text
    typed = dict(re.findall(r"# TYPE (weft_\S+) (\S+)", text))
    exported = {
        *typed,
        *(f"{n}_{end}" for n, k in typed.items() if k == "histogram" for end in ("bucket", "sum")),
    }

    assert len(asked) >= 15
    assert asked <= exported
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len(panels)


def test_the_dashboard_has_what_grafana_needs_to_load_it() -> None:
    board = json.loads(DASHBOARD.read_text())
    panels = board["panels"]

    assert board["title"] and board["uid"] and board["schemaVersion"] >= 30
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} <= {"stat", "timeseries", "gauge", "table", "row"}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0, panel["title"]
        assert panel["title"] and all(t["expr"] and t["refId"] for t in panel["targets"])
        assert all(t["expr"].count("(") == t["expr"].count(")") for t in panel["targets"])
        assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) - {"__rate_interval", "__interval"}
    assert used <= {variable["name"] for variable in board.get("templating", {}).get("list", [])}


def test_every_alert_asks_for_a_metric_that_is_exported_and_says_what_is_wrong() -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    with serving() as client:
        exported = {*re.findall(r"# TYPE (weft_\S+) ", client.get("/metrics").text)}

    asked = {name for rule in rules for name in NAME.findall(rule["expr"])}
    assert len(rules) >= 6
    assert asked <= exported
    assert all(rule["annotations"]["summary"] for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_prometheus_itself_accepts_every_query_and_alert(tmp_path: Path) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("needs promtool: apt-get install prometheus")
    queries = [
        t["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for t in panel["targets"]
    ]
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "1m")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "queries.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )

    command = [promtool, "check", "rules", str(tmp_path / "queries.yml"), str(ALERTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_labels_that_the_dashboard_groups_by_are_there() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    grouped = {
        (label, name)
        for panel in panels
        for t in panel["targets"]
        for label in re.findall(r"by \((\w+)\)", t["expr"])
        for name in NAME.findall(t["expr"])
    }
    with serving("simulated:cluster=1x2:a100,speed=1") as client:
        for _ in range(2):
            submit(client, gpus=2, tenant="nlp", hints={"duration_s": 900})
        wait_until(lambda: get(client, "/cluster")["running"] == 1)
        exported = samples(client.get("/metrics").text)

    for label, name in grouped:
        if name != "weft_lost_gpu_seconds_total":  # nobody has lost anything yet
            assert any(key.startswith(name) and f"{label}=" in key for key in exported), (
                label,
                name,
            )


def test_the_queue_is_told_by_tenant_and_reason_and_the_rest_is_counted() -> None:
    with serving("simulated:cluster=2x2:a100,speed=1") as client:
        client.put(f"{API}/quotas", json={"limits": {"b": 1}})
        held = [submit(client, gpus=2, tenant="a", preemptible=True) for _ in range(2)]
        for job in held:
            wait_until(lambda job=job: get(client, f"/jobs/{job}")["state"] == "running")  # type: ignore[misc]
        submit(client, gpus=1, tenant="a", share="never")
        submit(client, gpus=2, tenant="b")
        client.post(f"{API}/nodes/a100-1/drain")
        wait_until(lambda: get(client, "/cluster")["running"] == 1)
        wait_until(lambda: "weft_lost_gpu_seconds_total{" in client.get("/metrics").text)

        exported = samples(client.get("/metrics").text)

    assert exported['weft_queue_jobs{tenant="a",reason="gpus"}'] >= 1
    assert exported['weft_queue_jobs{tenant="b",reason="too_large"}'] == 1
    assert exported['weft_utilisation_ratio{kind="a100"}'] == 1.0
    assert (
        exported['weft_wait_seconds_bucket{le="+Inf"}'] == exported["weft_wait_seconds_count"] == 2
    )
    assert exported['weft_nodes{state="drained"}'] == 1
    assert exported['weft_lost_gpu_seconds_total{tenant="a"}'] > 0.0
    assert exported["weft_decision_duration_seconds_count"] >= 1
