"""GPUs with faults and ranks that are always last, on nodes of Slurm: found by the agents there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import get, serving, submit
from tests.waiting import wait_until
from weft.engines.attempts import health_board

# NVIDIA's library as far as it is asked. A file N.xid in its folder is an event of device N, told
# once; N.ecc has its memory errors.
LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct event { void *device; unsigned long long kind, data; unsigned gpu, compute; };
static long number(long device, const char *what, int once) {
    char path[4096]; long value = -1;
    snprintf(path, sizeof path, "%s/%ld.%s", getenv("NVIDIA_COUNTERS"), device, what);
    FILE *file = fopen(path, "r");
    if (file) { if (fscanf(file, "%ld", &value) != 1) value = -1; fclose(file); }
    if (once && value >= 0) unlink(path);
    return value;
}
int nvmlInit_v2(void) { return 0; }
int nvmlEventSetCreate(void **set) { *set = (void *)1; return 0; }
int nvmlDeviceRegisterEvents(void *d, unsigned long long k, void *s) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **d) { *d = (void *)(100L + at); return 0; }
int nvmlDeviceGetTemperature(void *d, unsigned s, unsigned *out) { *out = 60; return 0; }
int nvmlDeviceGetTotalEccErrors(void *d, unsigned k, unsigned s, unsigned long long *out) {
    long errors = number((long)d - 100, "ecc", 0); *out = errors < 0 ? 0 : errors; return 0;
}
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned ms) {
    for (long device = 0; device < 4; device++) {
        long xid = number(device, "xid", 1);
        if (xid >= 0) {
            out->device = (void *)(100 + device); out->kind = 8; out->data = xid; return 0;
        }
    }
    return 10;
}
"""
# The agent with shorter times between two looks, and with that library.
AGENT = """#!/bin/sh
export LD_LIBRARY_PATH={folder} NVIDIA_COUNTERS={folder}/$SLURMD_NODENAME
for last; do :; done
exec {python} -P -c '
import sys
from pathlib import Path
from weft.node import agent
from weft.node.measuring import outside as health
from weft.wire import gpu_health as gpus
health.EVERY_S, gpus.LOOK_S = 2.0, 0.5
sys.exit(agent.main(Path(sys.argv[1])))
' "$last"
"""
# Steps of a gang without anybody to wait for: what each does before its backward pass.
TRAINING = """
import os, time, torch
torch.set_num_threads(1)
weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
slow = os.environ["SLURMD_NODENAME"] == os.environ["SLOW_NODE"]
late = slow and os.environ["LOCAL_RANK"] == os.environ["SLOW_RANK"]
while True:
    time.sleep(0.3 if late else 0.1)
    (weight * weight).sum().backward()
    optimizer.step()
"""


def make_driver(folder: Path) -> None:
    """The library in a folder, for LD_LIBRARY_PATH."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvml.c").write_text(LIBRARY)
    target = str(folder / "libnvidia-ml.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target, str(folder / "nvml.c")], check=True)


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The `python=` of an engine whose nodes have a driver."""
    folder = tmp_path / "driver"
    make_driver(folder)
    for node in ("a1", "a2", "t1", "t2"):
        (folder / node).mkdir(parents=True)
    wrapper = folder / "agent"
    wrapper.write_text(AGENT.format(folder=folder, python=sys.executable))
    wrapper.chmod(0o755)
    return wrapper


@contextmanager
def service(mode: str, agent: Path, state: Path) -> Iterator[httpx.Client]:
    with serving(f"slurm:mode={mode},python={agent}", state, "fifo") as client:
        yield client


def aside(client: httpx.Client) -> dict[tuple[str, int], str]:
    return {
        (node["id"], gpu["gpu"]): gpu["fault"]
        for node in get(client, "/nodes")["nodes"]
        for gpu in node["health"]
        if gpu["aside"]
    }


def where(client: httpx.Client, job: str) -> set[tuple[str, int]]:
    answer = get(client, f"/jobs/{job}")
    if answer["state"] != "running":
        return set()
    return {(part["node"], gpu) for part in answer["allocation"] for gpu in part["gpus"]}


def moved(client: httpx.Client, job: str, away_from: Iterable[tuple[str, int]]) -> bool:
    """Whether it runs without these devices, by one answer: between two it may have stopped."""
    now = where(client, job)
    return bool(now) and not now & {*away_from}


def end(client: httpx.Client, job: str) -> None:
    assert client.delete(f"/api/v1/jobs/{job}").status_code == 202
    wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "cancelled")


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_device_with_an_xid_is_set_aside_and_its_job_moves(
    mode: str, agent: Path, tmp_path: Path
) -> None:
    with service(mode, agent, tmp_path / "state") as client:
        sleep = [sys.executable, "-c", "import time; time.sleep(10000)"]
        job = submit(client, command=sleep, gpus=1, name="long", workdir=str(tmp_path))
        ((node, gpu),) = wait_until(lambda: where(client, job), "it runs")

        counter = agent.parent / node / f"{gpu}.xid"
        counter.with_suffix(".new").write_text("79\n")
        counter.with_suffix(".new").replace(counter)

        faults = wait_until(lambda: aside(client), "it is set aside")
        if mode == "pilot":
            assert faults == {(node, gpu): "Xid 79: it has fallen off the bus"}
        else:  # Slurm chooses devices, and cannot be asked to leave one out
            why = f"GPU {gpu}: Xid 79: it has fallen off the bus"
            assert faults == {(node, at): why for at in range(4)}
        wait_until(lambda: moved(client, job, faults), "it moves")
        assert get(client, f"/jobs/{job}")["attempt"] == 2
        assert client.post(f"/api/v1/nodes/{node}/undrain").status_code == 200
        assert aside(client) == {}
        end(client, job)


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_the_device_of_a_rank_that_is_always_last_is_set_aside(
    mode: str, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_board, "ROUNDS", 3)
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    with service(mode, agent, tmp_path / "state") as client:
        options: dict[str, Any] = {
            "command": [sys.executable, str(script)],
            "gpus": 3,
            "processes": "per-gpu",
            "workdir": str(tmp_path),
            "env": {"SLOW_NODE": "a1", "SLOW_RANK": "1", "OMP_NUM_THREADS": "1"},
        }
        job = submit(client, name="gang", kinds=["a100"], **options)
        first = wait_until(lambda: where(client, job), "it runs")
        assert {node for node, _ in first} == {"a1"}

        faults = wait_until(lambda: aside(client), "it is set aside")

        assert {node for node, _ in faults} == {"a1"}
        assert len(faults) == (1 if mode == "pilot" else 4)
        assert all("slow: rank 1 of" in why and "times as long" in why for why in faults.values())
        wait_until(lambda: moved(client, job, faults), "it moves")
        end(client, job)
