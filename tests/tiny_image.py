"""An image of a few programs, for tests in which Podman runs jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NAME = "localhost/weft-test"
BUSYBOX = shutil.which("busybox")
# A sandbox may not raise limits, nor have the control groups of crun.
CONF = '[containers]\ndefault_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]\n'


def make_tiny_image(folder: Path) -> tuple[str, dict[str, str]]:
    """Its name, and the variables that Podman needs here; skips a test where it does not run."""
    if shutil.which("podman") is None or BUSYBOX is None:
        pytest.skip("needs podman and busybox: apt-get install podman busybox")
    (folder / "bin").mkdir()
    shutil.copy(BUSYBOX, folder / "bin" / "busybox")
    for name in ("sh", "sleep", "env", "cat"):
        (folder / "bin" / name).symlink_to("busybox")
    packed = subprocess.run(["tar", "-C", folder, "-c", "."], check=True, capture_output=True)
    runc = '[engine]\nruntime = "runc"\n' if shutil.which("runc") else ""
    (folder / "containers.conf").write_text(CONF + runc)
    variables = {"CONTAINERS_CONF": str(folder / "containers.conf")}
    env = {**os.environ, **variables}
    run = ["podman", "run", "--rm", "--network", "host", "--pid", "host", NAME, "/bin/env"]
    for command, fed in ((["podman", "import", "-", NAME], packed.stdout), (run, b"")):
        tried = subprocess.run(command, input=fed, capture_output=True, env=env)
        if tried.returncode:
            pytest.skip(f"podman cannot run here: {tried.stderr.decode().strip()}")
    return NAME, variables
