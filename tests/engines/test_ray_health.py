"""A GPU with a fault on a node of a real Ray cluster: found by the agent of the job that has it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clusters.ray import throw_away_ray, why_not
from tests.engines.test_slurm_health import aside, end, make_driver, moved, where
from tests.integration.serving import get, serving, submit
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_a_device_of_ray_with_an_xid_is_set_aside_alone_and_its_job_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "driver"
    make_driver(driver)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("NVIDIA_COUNTERS", str(driver))
    with throw_away_ray("a1:a100:2", "a2:a100:2") as cluster:
        monkeypatch.delenv("LD_LIBRARY_PATH")  # the service's own machine has no driver
        with serving(cluster.engine, tmp_path / "state", "fifo") as client:
            sleep = [sys.executable, "-c", "import time; time.sleep(10000)"]
            job = submit(client, command=sleep, gpus=1, name="long", workdir=str(tmp_path))
            ((node, gpu),) = wait_until(lambda: where(client, job), "it runs", 120.0)

            (driver / "new").write_text("79\n")
            (driver / "new").replace(driver / f"{gpu}.xid")

            faults = wait_until(lambda: aside(client), "it is set aside", 120.0)
            assert faults == {(node, gpu): "Xid 79: it has fallen off the bus"}
            wait_until(lambda: moved(client, job, faults), "it moves", 120.0)
            assert get(client, f"/jobs/{job}")["attempt"] == 2
            end(client, job)
