"""Commands that only ask a service start without what a scheduler needs."""

from __future__ import annotations

import subprocess
import sys

ASKING = (
    *("jobs.change", "jobs.job", "jobs.jobs", "jobs.metrics", "jobs.submit", "jobs.wait"),
    *("cluster.admin", "cluster.nodes", "cluster.quota", "cluster.top"),
)
HEAVY = ("numpy", "pydantic", "fastapi", "torch")


def test_commands_that_ask_a_service_load_no_numpy() -> None:
    modules = ", ".join(f"weft.cli.commands.{name}" for name in ASKING)
    code = f"import sys, {modules}; print(*(name for name in {HEAVY} if name in sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
