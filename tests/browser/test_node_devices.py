"""A node's page: what its GPUs did by their driver, and taking it out of use.

The driver's library is a stand-in in C with NVML's functions, since there may be no GPU here; all
from reading it up to the page is as with a real one, in a service of its own process.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import API, bearer, serving, submit, token
from tests.waiting import LIMIT_S, read_address, wait_until
from weft.engines.attempts.own_processes import MemoryBook

# Two GPUs; the first is busy while the file `busy` is there, as with a training on an H200.
LIBRARY = r"""
#include <stdlib.h>
#include <unistd.h>
struct rates { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
static int busy(void *d) { return (long)d == 100 && !access(getenv("BUSY"), F_OK); }
int nvmlInit_v2(void) { return 0; }
int nvmlEventSetCreate(void **set) { *set = (void *)1; return 0; }
int nvmlDeviceRegisterEvents(void *d, unsigned long long k, void *s) { return 0; }
int nvmlEventSetWait_v2(void *set, void *out, unsigned ms) { return 10; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **d) { *d = (void *)(100L + at); return 0; }
int nvmlDeviceGetTemperature(void *d, unsigned s, unsigned *out) {
    *out = busy(d) ? 66 : 31; return 0;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { *out = busy(d) ? 612345 : 76543; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, struct rates *out) {
    out->gpu = busy(d) ? 97 : 0; out->memory = 1; return 0;
}
int nvmlDeviceGetMemoryInfo(void *d, struct memory *out) {
    out->total = 150000000000ULL; out->used = busy(d) ? 81500000000ULL : 600000000ULL;
    out->free = out->total - out->used; return 0;
}
int nvmlDeviceGetTotalEccErrors(void *d, unsigned k, unsigned s, unsigned long long *out) {
    *out = 0; return 0;
}
"""
# `weft serve`, with less time between two looks.
SERVE = """
import sys
from weft.app.serve.device_history import DeviceHistory
from weft.cli.main import main
from weft.wire import gpu_health as health
health.LOOK_S = DeviceHistory.every_s = 0.3
sys.argv[0] = "weft"
main()
"""


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with two GPUs."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc")
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "nvml.c").write_text(LIBRARY)
    target = str(folder / "libnvidia-ml.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target, str(folder / "nvml.c")], check=True)
    smi = folder / "nvidia-smi"
    smi.write_text(
        '#!/bin/sh\n[ "$1" = topo ] && exit 1\nprintf "0, H200, 143771\\n1, H200, 143771\\n"\n'
    )
    smi.chmod(0o755)
    known = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    busy = str(tmp_path / "busy")
    return {**known, "PATH": path, "LD_LIBRARY_PATH": str(folder), "BUSY": busy}


@contextmanager
def service_with_gpus(env: dict[str, str], state: Path) -> Iterator[str]:
    options = ["--engine", "local:name=n1,warm=false", "--state", str(state), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
    )
    assert process.stdout is not None
    try:
        yield read_address(process)
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        process.stdout.close()


PANELS = ("GPU use", "GPU memory, GB", "Power, W", "Temperature, °C", "Memory errors not corrected")


def test_a_nodes_page_draws_what_its_gpus_did_also_after_a_restart(
    driver: dict[str, str], tmp_path: Path, open_page: Open
) -> None:
    state, busy = tmp_path / "state", Path(driver["BUSY"])
    with (
        service_with_gpus(driver, state) as address,
        httpx.Client(base_url=address, timeout=LIMIT_S, trust_env=False, verify=False) as client,
    ):

        def series(gpu: int, counter: str) -> list[float | None]:
            gpus = client.get(f"{API}/nodes/n1/devices").json()["gpus"]
            values: list[float | None] = gpus[gpu][counter] if gpus else []
            return values

        wait_until(lambda: len(series(0, "sm")) > 2)
        busy.touch()
        wait_until(lambda: 0.97 in series(0, "sm"))
        busy.unlink()
        wait_until(lambda: series(0, "sm")[-1] == 0.0)
        assert max(filter(None, series(0, "power_w"))) == pytest.approx(612.345)
        assert max(filter(None, series(0, "held_gb"))) == pytest.approx(81.5)
        assert set(series(1, "temp_c")) == {31.0}
        page = open_page(f"{address}#/node/n1")
        for title in PANELS:
            expect(page.get_by_role("img", name=f"{title} of each GPU over time")).to_be_visible()
        expect(page.get_by_role("heading", name="GPU use", exact=True)).to_be_visible()
        job = submit(client, command=["sleep", "1000"], gpus=1)
        wait_until(lambda: client.get(f"{API}/jobs/{job}").json()["state"] == "running")
        held = [{"at": 1e9 + at, "report": {"held_gb": 70.0 + at}} for at in range(3)]
        page.route(f"**/jobs/{job}/events*", lambda asked: asked.fulfill(json={"events": held}))
        memory = page.get_by_role("img", name="GPU memory, GB of its jobs over time")
        expect(memory).to_be_visible()
        client.delete(f"{API}/jobs/{job}").raise_for_status()
        wait_until(lambda: client.get(f"{API}/jobs/{job}").json()["state"] == "cancelled")
        page.close()

    with (
        service_with_gpus(driver, state) as address,
        httpx.Client(base_url=address, timeout=LIMIT_S, trust_env=False, verify=False) as client,
    ):
        assert 0.97 in series(0, "sm")
    wait_until(lambda: MemoryBook(state).pid is None)  # no job is left that could wait for memory


def test_an_admin_drains_a_node_from_its_page_and_uses_it_again(open_page: Open) -> None:
    with serving("simulated:cluster=2x4:a100,speed=20", policy="fifo") as client:
        job = submit(client, name="moves", gpus=4, hints={"duration_s": 1e7})
        (node,) = (part["node"] for part in client.get(f"{API}/jobs/{job}").json()["allocation"])
        admin = token(client, "admin")
        mine = token(client, "user", "vision", by=admin)
        page = open_page(f"{client.base_url}#/node/{node}")
        page.get_by_label("Token").fill(mine)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name=node)).to_be_visible()
        expect(page.get_by_role("button", name="Drain …")).to_have_count(0)  # not for users
        refused = client.post(f"{API}/nodes/{node}/drain", headers=bearer(mine))
        assert refused.status_code == 403
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").fill(admin)
        page.get_by_role("button", name="Sign in").click()

        page.get_by_role("button", name="Drain …").click()
        expect(page.get_by_role("dialog")).to_contain_text("Jobs on it move or stop")
        page.get_by_role("button", name="Go back").click()
        assert _state(client, node, admin) == "up"  # asked, and nothing was done
        page.get_by_role("button", name="Drain …").click()
        page.get_by_role("dialog").get_by_label("why").fill("a fan is loud")
        page.get_by_role("button", name="Drain it").click()
        expect(page.locator("main .badge").first).to_contain_text("drained")
        assert _state(client, node, admin) == "drained"
        happened = page.get_by_role("region", name="What happened")
        why = re.compile(rf"{node} was drained by .+: a fan is loud")
        for place in (page.locator("main .note"), happened.get_by_role("listitem").first):
            expect(place).to_contain_text(why)
        expect(page.get_by_text("No jobs run here.")).to_be_visible()

        page.get_by_role("button", name="Put back into service …").click()
        page.get_by_role("button", name="Put back into service", exact=True).click()
        expect(page.locator("main .badge").first).to_contain_text("up")
        assert _state(client, node, admin) == "up"
        first = happened.get_by_role("listitem").first
        expect(first).to_contain_text(f"{node} was put back into service")
        expect(page.get_by_text("Nothing is wrong with it.")).to_be_visible()
        page.get_by_role("button", name="30 d").click()
        expect(page).to_have_url(re.compile("past=720"))
        page.close()


def test_a_check_of_a_node_says_what_is_wrong_with_which_gpu(open_page: Open) -> None:
    with serving("simulated:cluster=1x4:a100,speed=20", policy="fifo") as client:
        gpus = [{"gpu": 0, "fault": ""}, {"gpu": 1, "fault": "CUDA cannot open it"}]
        page = open_page(f"{client.base_url}#/node/a100-0")
        page.route("**/check", lambda asked: asked.fulfill(json={"id": "a100-0", "gpus": gpus}))
        page.get_by_role("button", name="Check …").click()
        page.get_by_role("button", name="Check it").click()
        expect(page.locator(".toast").last).to_contain_text("GPU 1: CUDA cannot open it")
        page.close()


def _state(client: httpx.Client, node: str, admin: str) -> str:
    nodes = client.get(f"{API}/nodes", headers=bearer(admin)).json()["nodes"]
    word: str = next(listed["state"] for listed in nodes if listed["id"] == node)
    return word
