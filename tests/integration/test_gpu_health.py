"""A GPU whose driver tells of a fault is set aside alone, and its job goes on on another one."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.integration.serving import get, serving, submit
from tests.waiting import wait_until
from weft.app.join import refuse_broken
from weft.cli.main import cli
from weft.core.errors import EngineError
from weft.wire import gpu_health as device_health
from weft.wire.gpu_check import LIBRARY, check_gpus

NO_EVENT, NOT_SUPPORTED = 10, 3


class Driver:
    """NVIDIA's library as far as it is asked: `xids` are told once, `errors` are counters."""

    def __init__(self) -> None:
        self.xids: list[tuple[int, int]] = []
        self.errors = {0: 0, 1: 0}
        self._known = {
            "nvmlInit_v2": lambda: 0,
            "nvmlEventSetCreate": lambda _: 0,
            "nvmlDeviceGetHandleByIndex_v2": self._open,
            "nvmlDeviceRegisterEvents": lambda *_: 0,
            "nvmlEventSetWait_v2": self._wait,
            "nvmlDeviceGetTemperature": self._heat,
            "nvmlDeviceGetTotalEccErrors": self._errors,
            "nvmlDeviceGetNvLinkState": lambda *_: NOT_SUPPORTED,
        }

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            raise AttributeError(name)  # as an old library
        return self._known[name]

    def _open(self, number: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = 100 + number.value
        return 0

    def _wait(self, events: Any, event: Any, timeout: Any) -> int:
        if not self.xids:
            return NO_EVENT
        gpu, xid = self.xids.pop()
        event._obj.device, event._obj.kind, event._obj.data = 100 + gpu, 8, xid
        return 0

    def _heat(self, handle: ctypes.c_void_p, sensor: Any, out: Any) -> int:
        out._obj.value = 60
        return 0

    def _errors(self, handle: ctypes.c_void_p, kind: Any, since: Any, out: Any) -> int:
        out._obj.value = self.errors[int(handle.value or 0) - 100]
        return 0


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A machine with two GPUs, by the library and by nvidia-smi."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        '#!/bin/sh\n[ "$1" = topo ] && exit 1\nprintf "0, T4, 15360\\n1, T4, 15360\\n"\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(device_health, "LOOK_S", 0.0)
    made, real = Driver(), ctypes.CDLL

    def load(name: str, *others: Any, **more: Any) -> Any:
        return made if name == device_health.LIBRARY else real(name, *others, **more)

    monkeypatch.setattr(ctypes, "CDLL", load)
    return made


@contextmanager
def service(tmp_path: Path) -> Iterator[httpx.Client]:
    with serving("local:name=n1,warm=false", tmp_path / "state", "fifo") as client:
        yield client


def health(client: httpx.Client) -> list[dict[str, Any]]:
    (node,) = get(client, "/nodes")["nodes"]
    devices: list[dict[str, Any]] = node["health"]
    return devices


def notes(client: httpx.Client, number: int) -> list[str]:
    """What is noted of a GPU, nothing before it was looked at."""
    return [note for gpu in health(client) if gpu["gpu"] == number for note in gpu["notes"]]


def faults(client: httpx.Client) -> dict[int, str]:
    return {gpu["gpu"]: gpu["fault"] for gpu in health(client) if gpu["aside"]}


def gpu_of(client: httpx.Client, job: str) -> int | None:
    answer = get(client, f"/jobs/{job}")
    if answer["state"] != "running":
        return None
    number: int = answer["allocation"][0]["gpus"][0]
    return number


def test_the_gpu_is_set_aside_alone_and_its_job_moves(driver: Driver, tmp_path: Path) -> None:
    with service(tmp_path) as client:
        sleep = [sys.executable, "-c", "import time; time.sleep(10000)"]
        job = submit(client, command=sleep, gpus=1, name="long", workdir=str(tmp_path))
        wait_until(lambda: gpu_of(client, job) is not None, "it runs")
        bad = gpu_of(client, job)
        assert bad is not None
        driver.xids.append((bad, 31))  # of a program
        wait_until(lambda: any("Xid 31" in note for note in notes(client, bad)))
        assert faults(client) == {}

        driver.xids.append((bad, 79))

        wait_until(lambda: gpu_of(client, job) == 1 - bad, "it runs on the other one")
        assert faults(client) == {bad: "Xid 79: it has fallen off the bus"}
        (node,) = get(client, "/nodes")["nodes"]
        assert (node["state"], node["drained_gpus"]) == ("up", [bad])
        assert get(client, f"/jobs/{job}")["attempt"] == 2
        assert client.delete(f"/api/v1/jobs/{job}").status_code == 202
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "cancelled")


def test_it_stays_aside_until_a_person_says_so_and_needs_a_new_fault_then(
    driver: Driver, tmp_path: Path
) -> None:
    driver.errors[0] = 1
    expected = {0: "memory errors that were not corrected: 1"}
    with service(tmp_path) as client:
        wait_until(lambda: faults(client) == expected)
    driver.errors[0] = 0  # the machine was started anew
    with service(tmp_path) as client:
        assert faults(client) == expected

        assert client.post("/api/v1/nodes/n1/undrain").status_code == 200
        assert faults(client) == {}
        driver.errors[0] = 1
        wait_until(lambda: faults(client) == expected)

        assert client.post("/api/v1/nodes/n1/undrain").status_code == 200
        driver.xids.append((1, 64))
        wait_until(lambda: 1 in faults(client), "the other one is set aside, the first is not")
        assert 0 not in faults(client)


CUDA = """
int cuInit(unsigned flags) { return 100; }
int cuGetErrorString(int code, const char **text) { *text = "no device is detected"; return 0; }
"""
NO_CUDA = "cuInit answered 100 (no device is detected)"


@pytest.fixture
def no_gpu_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA finds no GPU, whatever the driver lists: for agents and what they start."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc")
    source = tmp_path / "cuda.c"
    source.write_text(CUDA)
    library = tmp_path / "lib" / LIBRARY
    library.parent.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))


@pytest.mark.usefixtures("driver", "no_gpu_opens")
def test_a_gpu_on_which_a_job_fails_at_once_is_opened_and_set_aside(tmp_path: Path) -> None:
    """Three attempts went to the same two GPUs, of which CUDA found none."""
    with service(tmp_path) as client:
        fails = [sys.executable, "-c", "raise SystemExit('CUDA finds none')"]
        submit(client, command=fails, gpus=1, name="short", workdir=str(tmp_path))

        wait_until(lambda: [*faults(client).values()] == [NO_CUDA], "its GPU is set aside alone")


@pytest.mark.usefixtures("driver", "no_gpu_opens")
def test_a_node_opens_the_gpus_that_no_job_holds_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(tmp_path) as client:
        monkeypatch.setenv("WEFT_URL", str(client.base_url))
        ran = CliRunner().invoke(cli, ["nodes", "--check"], env={"COLUMNS": "200"})
        assert (ran.exit_code, ran.stdout) == (1, f"n1: GPU 0: {NO_CUDA}; GPU 1: {NO_CUDA}\n")

        checked = client.post("/api/v1/nodes/n1/check").json()

        assert [(gpu["gpu"], gpu["fault"]) for gpu in checked["gpus"]] == [
            (0, NO_CUDA),
            (1, NO_CUDA),
        ]
        assert get(client, "/jobs")["jobs"] == []
        wait_until(lambda: len(faults(client)) == 2, "both are set aside")


@pytest.mark.usefixtures("driver")
def test_gpus_that_jobs_hold_are_not_opened(tmp_path: Path) -> None:
    with service(tmp_path) as client:
        sleep = [sys.executable, "-c", "import time; time.sleep(10000)"]
        job = submit(client, command=sleep, gpus=2, name="wide", workdir=str(tmp_path))
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "running", "it runs")

        refused = client.post("/api/v1/nodes/n1/check")

        assert (refused.status_code, refused.json()["error"]) == (409, "jobs hold all GPUs of n1")
        assert client.delete(f"/api/v1/jobs/{job}").status_code == 202
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "cancelled")


@pytest.mark.usefixtures("driver", "no_gpu_opens")
def test_a_machine_does_not_join_with_gpus_that_do_not_open() -> None:
    with pytest.raises(EngineError, match=r"GPU 0 cannot be used: cuInit.*; GPU 1 cannot"):
        refuse_broken(2)


def test_a_gpu_that_hangs_has_a_fault_and_one_without_cuda_is_not_judged() -> None:
    assert check_gpus(["0"], ("sleep", "1000"), 0.1) == {"0": "it did not open within 0.1 s"}
    assert check_gpus(["0"], ("sh", "-c", "exit 3")) == {}
    died = {"1": "the program that opened it ended with -9"}
    assert check_gpus(["1"], ("sh", "-c", "kill -9 $$")) == died
