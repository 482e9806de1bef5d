"""`weft doctor` and `weft mcp` against a real service."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.serving import STILL, get, serving, submit
from tests.waiting import wait_until
from weft.cli.commands.cluster.doctor import (
    check_folders,
    check_gpus,
    check_live_resize,
    check_service,
)
from weft.cli.commands.cluster.mcp import reply
from weft.cli.connect.client import ServiceClient


def call(client: ServiceClient, name: str, **arguments: Any) -> Any:
    asked = {"name": name, "arguments": arguments}
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": asked})
    answer = reply(client, line)
    assert answer is not None
    assert answer["id"] == 7
    content = answer["result"]["content"][0]["text"]
    return content if answer["result"]["isError"] else json.loads(content)


def test_an_assistant_lists_explains_plans_compares_and_submits_only_when_confirmed() -> None:
    with serving(STILL) as http:
        client = ServiceClient(str(http.base_url), "")
        for _ in range(3):
            submit(http, name="holds", gpus=4, hints={"duration_s": 9000})
        job = submit(http, name="mine", gpus=8, kinds=["a100"])
        wait_until(lambda: get(http, "/cluster")["running"] == 3)
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        introduced = reply(client, json.dumps(hello))
        listed = reply(client, '{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}')

        assert introduced is not None
        assert introduced["result"]["serverInfo"]["name"] == "weft"
        assert listed is not None
        names = {tool["name"] for tool in listed["result"]["tools"]}
        assert names == {"list_jobs", "explain", "plan", "what_if", "submit"}
        assert {row["id"] for row in call(client, "list_jobs")} >= {job}
        assert "holds (4)" in call(client, "explain", job="mine")["reason"]
        assert "no job" in call(client, "explain", job="nobody")
        assert call(client, "plan", file={"gpus": 4})["starts_now"] is False
        assert call(client, "what_if", nodes="1x8:a100")["jobs"] == 4
        shown = call(client, "submit", file={"name": "new", "gpus": 1})
        assert "nothing is queued yet" in shown["next"]
        assert len(get(http, "/jobs")["jobs"]) == 4
        made = call(client, "submit", file={"name": "new", "gpus": 1}, confirm=True)
        assert get(http, f"/jobs/{made['id']}")["name"] == "new"
        notified = reply(client, '{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        assert notified is None
        wrong = reply(client, '{"jsonrpc": "2.0", "id": 3, "method": "nothing"}')
        assert wrong is not None
        assert wrong["error"]["code"] == -32601


def test_the_doctor_looks_at_the_service_and_its_nodes() -> None:
    with serving(STILL) as http:
        http.post("/api/v1/nodes/t4-2/drain")

        findings = {
            finding.what: finding
            for finding in check_service(ServiceClient(str(http.base_url), ""))
        }

        assert findings["service"].verdict == "ok"
        assert findings["nodes"].verdict == "note"
        assert "not: t4-2" in findings["nodes"].text
    (gone,) = check_service(ServiceClient("http://127.0.0.1:1", ""))
    assert gone.verdict == "bad"


def test_the_doctor_looks_at_folders_and_the_driver(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    findings = {check_folder.what: check_folder for check_folder in check_folders(tmp_path)}

    assert findings["state"].verdict == "note"
    assert findings["checkpoints"].verdict == "ok"
    assert "GB free" in findings["disk"].text
    two = "NVIDIA H200, 570.1\nNVIDIA H200, 570.1\n"
    assert next(check_gpus(lambda _: two)).text == "2 GPUs, NVIDIA H200, 570.1"

    def broken(_: list[str]) -> str:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    assert next(check_gpus(broken)).verdict == "bad"


@pytest.mark.parametrize("line", ["", "[]", "{", '{"id": 1}'])
def test_what_is_no_message_is_answered_as_that(line: str) -> None:
    answer = reply(ServiceClient("http://127.0.0.1:1", ""), line)

    assert answer is not None
    assert answer["error"]["code"] == -32700


def test_the_doctor_says_what_jobs_found_out_about_resizing_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "weft" / "live-resize"
    assert [*check_live_resize()] == []

    kept.mkdir(parents=True)
    (kept / "a.json").write_text('{"of": "torch 2.13", "why": "", "at": 1.0}')
    (kept / "b.json").write_text('{"of": "torch 9.9", "why": "no sums", "at": 1.0}')
    (kept / "c.json").write_text("{")

    outcomes = [(finding.verdict, finding.text) for finding in check_live_resize()]
    assert outcomes == [("ok", "torch 2.13"), ("note", "not with torch 9.9: no sums")]
