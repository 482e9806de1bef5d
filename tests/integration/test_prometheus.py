"""A real Prometheus scrapes a real service: all queries of the dashboard have data."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.serving import API, bearer, serving, submit, token
from tests.waiting import LIMIT_S, wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus-alerts.yml"


def queries() -> list[str]:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@contextmanager
def prometheus(service: str, secret: str, folder: Path) -> Iterator[httpx.Client]:
    """One that scrapes the service twice a second, as the docs configure it."""
    if (program := shutil.which("prometheus")) is None:
        pytest.skip("needs prometheus: apt-get install prometheus")
    (folder / "weft.token").write_text(secret)
    scrape = {
        "job_name": "weft",
        "authorization": {"credentials_file": str(folder / "weft.token")},
        "static_configs": [{"targets": [service.removeprefix("http://")]}],
    }
    settings = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [scrape],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--config.file={folder}/prometheus.yml", f"--web.listen-address={address}"]
    command += [f"--storage.tsdb.path={folder}/tsdb", "--log.level=warn"]
    with (folder / "said").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
    try:
        base = f"http://{address}/api/v1"
        with httpx.Client(base_url=base, timeout=LIMIT_S, trust_env=False, verify=False) as client:
            yield client
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def ask(client: httpx.Client, path: str, **query: str) -> Any:
    try:
        got = client.get(path, params=query)
    except httpx.TransportError:  # it is not up yet
        return None
    if got.status_code == 503:  # nor ready
        return None
    answer = got.json()
    assert answer["status"] == "success", answer
    return answer["data"]


def test_every_query_of_the_dashboard_has_data_of_a_real_prometheus(tmp_path: Path) -> None:
    with serving("simulated:cluster=2x2:a100,speed=1") as client:
        for name in ("first", "second"):
            job = submit(client, name=name, gpus=2, tenant="vision", preemptible=True)
            wait_until(
                lambda job=job: client.get(f"{API}/jobs/{job}").json()["state"] == "running"  # type: ignore[misc]
            )
        submit(client, name="waits", gpus=2, tenant="nlp")
        client.post(f"{API}/nodes/a100-1/drain").raise_for_status()  # one starts again elsewhere
        wait_until(lambda: "weft_lost_gpu_seconds_total{" in client.get("/metrics").text)
        admin = token(client, "admin")
        viewer = token(client, "viewer", "*", by=admin)
        with prometheus(str(client.base_url).rstrip("/"), viewer, tmp_path) as scraper:

            def count(query: str) -> int:
                answer = ask(scraper, "/query", query=query)
                return 0 if answer is None else len(answer["result"])

            wait_until(lambda: count("count_over_time(weft_jobs[5m]) > 3") > 0)
            asked = [query.replace("$__rate_interval", "1m") for query in queries()]
            wait_until(lambda: not [query for query in asked if not count(query)])

            running = ask(scraper, "/query", query='sum(weft_jobs{state="running"})')
            assert float(running["result"][0]["value"][1]) == 1.0

            def rules() -> list[dict[str, Any]]:
                groups = (ask(scraper, "/rules") or {"groups": []})["groups"]
                return [rule for group in groups for rule in group["rules"]]

            expected = len(yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"])
            wait_until(lambda: [rule["health"] for rule in rules()] == ["ok"] * expected)
        assert client.get("/metrics", headers=bearer(viewer)).status_code == 200
