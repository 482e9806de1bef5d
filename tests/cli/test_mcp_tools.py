"""What assistants are told by `weft mcp`, against a stand-in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from packages.weft.tests.cli.jobs import CLUSTER, job

from tests.cli.stand_in import stand_in
from weft.cli.commands.cluster.mcp import reply
from weft.cli.connect.client import ServiceClient
from weft.service.responses.answers import JobList


def ask(client: ServiceClient, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    line = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = reply(client, json.dumps(line))
    assert answer is not None
    return answer


def test_old_jobs_do_not_hide_those_that_wait() -> None:
    old = [job(f"old-{i}", "succeeded") for i in range(300)]
    jobs = [*old, job("mine", "pending", reason="waits for 2 GPUs")]
    answers = {
        "GET /jobs": (200, JobList(jobs=jobs, next=None)),
        "GET /cluster": (200, replace(CLUSTER, jobs={"succeeded": 300, "pending": 1})),
    }
    with stand_in(answers) as service:
        answer = ask(ServiceClient(service.url, ""), "list_jobs")
    listed = json.loads(answer["result"]["content"][0]["text"])

    assert len(listed) <= 100
    assert listed[-1]["id"] == "mine"
    assert listed[-1]["reason"] == "waits for 2 GPUs"
    assert "command" not in listed[-1]  # `explain` and people tell more: a list is to be short


def test_a_call_that_cannot_be_made_says_what_is_missing() -> None:
    client = ServiceClient("http://127.0.0.1:1", "")

    assert ask(client, "submit", gpus=1)["error"]["message"] == "submit needs file"
    assert ask(client, "dance")["error"]["message"] == (
        "there is no tool 'dance'; there are list_jobs, explain, plan, what_if, submit"
    )
