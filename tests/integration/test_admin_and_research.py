"""What two people do from beginning to end, by the commands they type.

The administrator sets up a service from a file, shares it by quotas, maintains it, watches it, and
brings it back from a backup. The researcher replays a trace, compares a policy of their own, and
takes the numbers along.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from tests.waiting import LIMIT_S, wait_until
from weft.cli.main import cli

CONFIG = """
engine = "simulated:cluster=2x4:a100,speed=1"
policy = "fifo:backfill=true"
state = "state"
port = 0
own = ["nlp=4", "vision=4"]
parent = ["nlp=lab", "vision=lab"]
min-run = 0
"""
MINE = '''
"""A policy of one's own."""

from dataclasses import dataclass

import numpy as np

from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.pieces.pack import pack


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest first."""

    about = About("largest", "of this test")

    def decide(self, view: View) -> Plan:
        return pack(view, view.ranked(-np.asarray(view.table.need)))
'''


class Person:
    """Types commands, in a folder and with a token."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self._folder = folder
        self.env = {"WEFT_URL": url, "COLUMNS": "100", "NO_COLOR": "1"}

    def types(self, *words: str, code: int = 0) -> str:
        with contextlib.chdir(self._folder), mock.patch.object(sys, "argv", ["weft", *words]):
            done = CliRunner().invoke(cli, list(words), env=self.env)
        assert done.exit_code == code, (words, done.output)
        return done.stdout

    def asks(self, *words: str) -> Any:
        return json.loads(self.types(*words, "--json"))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The service of the file `weft.toml`; its address."""
    command = [sys.executable, "-m", "weft", "serve", "--config", "weft.toml"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            first = service.stdout.readline()
            assert first.startswith("weft serves http"), first
            yield first.split()[2]
        finally:
            service.terminate()
            service.wait(LIMIT_S)


def test_the_administrators_path(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text(CONFIG)
    with served(tmp_path) as url:
        admin, ann, ben = (Person(tmp_path, url) for _ in range(3))
        admin.env["WEFT_TOKEN"] = admin.asks("token", "create", "--role", "admin")["token"]
        for person, tenant in ((ann, "vision"), (ben, "nlp")):
            person.env["WEFT_TOKEN"] = admin.asks("token", "create", tenant)["token"]
        assert admin.asks("quota", "list")["own"] == {"nlp": 4.0, "vision": 4.0}

        # Idle quota is lent, and taken back.
        job = tmp_path / "job.yaml"
        job.write_text("gpus: 4\nrun: train\npreemptible: true\n")
        lent = [ann.types("submit", "job.yaml", "--quiet").strip() for _ in range(2)]
        wait_until(
            lambda: all(ann.asks("job", lent_job)["state"] == "running" for lent_job in lent)
        )
        own = ben.types("submit", "job.yaml", "--quiet").strip()
        wait_until(lambda: ben.asks("job", own)["state"] == "running")
        gone = next(
            lent_job for lent_job in lent if ann.asks("job", lent_job)["state"] != "running"
        )
        explanation = ann.asks("explain", gone)
        assert explanation["blocked_by"] == "reclaimed"
        assert "went back to tenant 'nlp'" in " ".join(ann.types("jobs").split())

        # Maintenance: a GPU, a machine when its jobs have ended, a window; and all back again.
        admin.types("drain", "a100-0", "--when-done")
        states = {node["id"]: node["state"] for node in admin.asks("nodes")["nodes"]}
        assert states["a100-0"] == "draining"
        admin.types("undrain", "a100-0")
        admin.types("drain", "a100-1:3")
        assert "drained" in admin.types("top", "--once")
        admin.types("undrain", "a100-1")
        admin.types("reserve", "add", "repair", "a100-1", "--start", "1h", "--end", "2h")
        assert [
            reservation["name"] for reservation in admin.asks("reserve", "list")["reservations"]
        ] == ["repair"]
        admin.types("reserve", "remove", "repair")

        # Watching: metrics for those who may, the audit log, a what-if before a rule.
        request = urllib.request.Request(
            f"{url}/metrics", headers={"Authorization": f"Bearer {admin.env['WEFT_TOKEN']}"}
        )
        with urllib.request.urlopen(request) as answer:
            assert b'weft_queue_jobs{tenant="vision",reason=' in answer.read()
        assert admin.asks("what-if", "--now", "--nodes", "1x4:a100")["outlook"]
        ben.types("quota", "set", "nlp", "--own", "8", code=2)
        assert "drain" in admin.types("audit")

        admin.types("state", "backup", "copy", "--state", "state")
    assert "error" not in admin.types("state", "check", "--state", "state")

    # Another machine, or another version: the copy brings everything back.
    (tmp_path / "state").rename(tmp_path / "lost")
    admin.types("state", "restore", "copy", "--state", "state")
    with served(tmp_path) as url:
        admin.env["WEFT_URL"] = url
        assert admin.asks("quota", "list")["parents"] == {"nlp": "lab", "vision": "lab"}
        assert {row["id"] for row in admin.asks("jobs", "--all")["jobs"]} == {*lent, own}


def test_the_researchers_path(tmp_path: Path) -> None:
    person = Person(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    person.types("simulate", "tiny-20", "-q", "--events", "log.jsonl")
    policies = ("-p", "fifo", "-p", "./mine.py:Largest")
    report = person.types(
        "compare", "log.jsonl", "-c", "2x4:v100", *policies, "-q", "--report", "report.html"
    )
    then = person.asks("what-if", "--events", "log.jsonl", "-c", "2x4:v100", "--nodes", "1x8:v100")
    script = (
        "import weft\n"
        "if __name__ == '__main__':\n"
        "    found = weft.compare('tiny-20', ['fifo', 'srtf'], seeds=range(2))\n"
        "    frame = found.to_frame()\n"
        "    print(len(frame), sorted(set(frame.policy)))\n"
        "    print(len(found.to_frame(per_job=True)))\n"
    )
    (tmp_path / "frame.py").write_text(script)
    printed = subprocess.run(
        [sys.executable, "frame.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout

    assert "mine.py:Largest" in report.replace("\n", "")
    assert "20 jobs" in report
    page = (tmp_path / "report.html").read_text()
    assert "finishes jobs fastest" in page or "about as fast" in page
    assert "weft compare log.jsonl" in page
    assert len(page.encode()) < 2_000_000
    now, more = then["policies"]["las"], then["policies"]["las, 1x8:v100 more"]
    assert more["avg_queue_h"] < now["avg_queue_h"]
    assert printed.splitlines() == ["4 ['fifo', 'srtf']", "80"]
