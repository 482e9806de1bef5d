"""A job that lies about its steps and its memory is told so, and nothing of it is believed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.waiting import LIMIT_S
from weft.app.serve.live import Live, Settings
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.node.measuring.measurer import PlausibleReports

# Claims of a program that does nothing: by its watcher's line, or as a rank that reports itself.
LIAR = """
import json, os, socket, sys, time
ballast = bytearray(100_000_000)
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.connect(os.environ["WEFT_AGENT"])
who = {"job": os.environ["WEFT_JOB"], "attempt": int(os.environ["WEFT_ATTEMPT"]), "rank": 0,
    "pid": os.getpid()}
for body in json.loads(sys.argv[1]):
    body = {**who, **body, "at": time.time()} if body["type"] in ("counted", "hello") else body
    line.sendall(json.dumps(body).encode() + b"\\n"); time.sleep(0.3)
"""
COUNTED = [{"type": "counted", "steps": 4e6 * n, "unit": "step"} for n in range(1, 6)]
SPOKEN = [
    {"type": "hello"},
    {"type": "report", "values": {"steps": 4e6, "step_s": 2.5e-7, "mem_gb": 0.001, "loss": 1.0}},
]
HONEST = [
    {"type": "hello"},
    {"type": "report", "values": {"steps": 40, "step_s": 0.25, "mem_gb": 5.0, "loss": 1.0}},
]


def test_a_live_service_does_not_believe_what_cannot_be_true(tmp_path: Path) -> None:
    claims = {"counted": COUNTED, "spoken": SPOKEN, "honest": HONEST}

    async def go() -> dict[str, tuple[list[str], dict[str, float]]]:
        engine = "local:slots=3,warm=false,cpu=true,name=here"
        service = Live(Settings(engine=engine, state=tmp_path))
        await service.open()
        for name, messages in claims.items():
            command = (sys.executable, "-c", LIAR, json.dumps(messages))
            launch = Launch(command, workdir=str(tmp_path), retries=0)
            await service.driver.submit(Job(JobId(name), launch=launch))
        seen = {}
        async with asyncio.timeout(LIMIT_S):
            for name in claims:
                record = (await service.driver.ended(JobId(name))).record
                values = record.report.values() if record.report else {}
                seen[name] = [text for *_, text in record.notices], dict(values)
        await service.close()
        return seen

    seen = asyncio.run(go())

    assert any("steps" in text and "not believed" in text for text in seen["counted"][0])
    assert "steps" not in seen["counted"][1]
    assert sum("not believed" in text for text in seen["spoken"][0]) == 2
    assert "step_s" not in seen["spoken"][1]
    assert seen["spoken"][1]["mem_gb"] >= 0.1
    assert seen["spoken"][1]["loss"] == 1.0
    assert not any("not believed" in text for text in seen["honest"][0])
    assert (seen["honest"][1]["steps"], seen["honest"][1]["mem_gb"]) == (40, 5.0)


def test_a_message_that_is_believed_has_had_the_cpu_time() -> None:
    notices: list[str] = []
    claims = PlausibleReports(lambda: 10.0, lambda _, text: notices.append(text))

    assert claims.allows_steps(2_000_000)
    assert not claims.allows_steps(4_000_000)
    assert not claims.allows_steps(5_000_000)
    assert len(notices) == 1
