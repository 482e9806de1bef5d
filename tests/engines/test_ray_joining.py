"""`weft serve --engine ray` begins a cluster, `weft join` adds a machine, which then leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clusters.ray import why_not
from tests.engines.elastic_scenario import Service, running_where, submit
from tests.waiting import LIMIT_S, wait_until
from weft.engines.ray.starting import NodeSetup, find_head, need_head
from weft.service.responses.answers import Done
from weft.wire.processes import descendants, start_time

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]
PORT = 26401
STANDS_STILL_S = 11.0  # more than Ray takes to start here, less than it waits for a head
HEAD = f"ray:ip=127.0.0.1,port={PORT},name=h1,files=carried"


@contextmanager
def joined(token: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    options = ["--name", "n2", "--kind", "a100", "--gpus", "2", "--ip", "127.0.0.1"]
    command = [sys.executable, "-m", "weft", "join", f"127.0.0.1:{PORT}", *options]
    with token.open() as token_file, (folder / "join.log").open("wb") as out:
        process = subprocess.Popen(
            [*command, "--files", str(folder / "n2"), "--no-unit"], stdin=token_file, stdout=out
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def end_head(state: Path) -> None:
    head = find_head(state)
    if head is not None:
        os.kill(head.pid, signal.SIGTERM)
        wait_until(lambda: start_time(head.pid) is None, "the head ended")


@pytest.mark.usefixtures("ray_network")
def test_a_machine_joins_trains_without_a_shared_folder_and_leaves_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    state = tmp_path / "state"
    service = Service(state, ("--engine", HEAD, "--policy", "fifo", "--slots", "1"))
    service.start()
    try:
        text = (state / "service.log").read_text()
        assert f"weft join 127.0.0.1:{PORT} < {state / 'ray-token'}" in text
        service.client.post(Done, "/nodes/h1/drain")
        with joined(state / "ray-token", tmp_path) as node:
            name = submit(service.client, state)
            wait_until(lambda: running_where(service.job(name)) == ["n2"], "it runs on n2")
            wait_until(lambda: bool(service.epochs(name, 1)), "its output was brought")
            wait_until(lambda: (service.job(name).saved_step or 0) > 0, "it saved")
            assert any((tmp_path / "n2").rglob("*.ckpt"))
            saved = [*(state / "jobs").rglob("*.ckpt")]
            service.client.post(Done, "/nodes/h1/undrain")

            node.send_signal(signal.SIGTERM)
            wait_until(lambda: running_where(service.job(name)) == ["h1"], "it moved to h1")

            assert node.wait(LIMIT_S) == 0
            assert "n2 has left" in (tmp_path / "join.log").read_text()
            assert saved
            again = service.job(name).attempt
            wait_until(lambda: bool(service.epochs(name, again)), "it trains on h1")
            assert min(service.epochs(name, again)) > 0, "it began from the beginning"
            service.client.delete(f"/jobs/{name}")
            wait_until(lambda: not any((state / "live").glob("*")), "nothing of it is left")
    finally:
        service.end()
        end_head(state)


@pytest.mark.usefixtures("ray_network")
def test_a_machine_is_called_a_node_only_when_the_cluster_lists_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    setup = NodeSetup("h1", slots=1, cpus=1, ip="127.0.0.1", port=PORT)
    head = asyncio.run(need_head(tmp_path, setup))
    (controller,) = [pid for pid in descendants(head.pid) if program_of(pid) == "gcs_server"]
    try:
        os.kill(controller, signal.SIGSTOP)  # it answers nobody: it can list nobody
        with joined(head.token, tmp_path) as node:
            time.sleep(STANDS_STILL_S)
            assert node.poll() is None
            assert "is a node" not in (tmp_path / "join.log").read_text()

            os.kill(controller, signal.SIGCONT)
            wait_until(
                lambda: (
                    node.poll() is not None
                    or f"n2 is a node of 127.0.0.1:{PORT}" in (tmp_path / "join.log").read_text()
                ),
                "it says that it is a node",
            )
            assert node.poll() is None
            node.send_signal(signal.SIGTERM)
            assert node.wait(LIMIT_S) == 0
    finally:
        os.kill(controller, signal.SIGCONT)
        end_head(tmp_path)


def program_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0].rpartition("/")[2]
