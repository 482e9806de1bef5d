"""What this machine lets us see of other people's scripts, and do to them, in a minute.

    python -m benchmarks.any_job.probe

Counts what the watcher sees in scripts of several kinds, reads the driver's counters for each
process, freezes one of a pair and measures the other, suspends one with the driver, and tries MPS.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.any_job.kinds import SCRIPTS, Job, read_steps
from weft.node.measuring.outside import ObservedDevices
from weft.node.ranks.process import watcher_variables

COUNTED = (
    ("transformer", 200),
    ("compiled", 60),
    ("graph", 2000),
    ("hugging-face", 60),
    ("lightning", 100),
    ("loader", 60),
)


class FakeAgent:
    """Listens as an agent does, and keeps the last that each process said."""

    def __init__(self, folder: str) -> None:
        self.path, self.last = f"{folder}/agent.sock", dict[int, dict[str, Any]]()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            line, _ = self._listener.accept()
            threading.Thread(target=self._read, args=(line,), daemon=True).start()

    def _read(self, line: socket.socket) -> None:
        for text in line.makefile():
            body = json.loads(text)
            self.last[body["pid"]] = body

    def environment(self) -> dict[str, str]:
        """What a watched process is started with."""
        path = watcher_variables(os.environ.get("PYTHONPATH", ""))
        who = {"WEFT_AGENT": self.path, "WEFT_JOB": "probe", "WEFT_ATTEMPT": "1"}
        return {**os.environ, **path, **who}

    def rate(self, pid: int, seconds: float) -> float:
        """Steps a second from now on."""
        before = dict(self.last.get(pid, {"steps": 0, "at": time.time()}))
        time.sleep(seconds)
        after = self.last.get(pid, before)
        took = after["at"] - before["at"]
        return (after["steps"] - before["steps"]) / took if took > 0.0 else 0.0


def start(agent: FakeAgent, kind: str, steps: int, folder: str, **env: str) -> Any:
    """A script with its output in a file."""
    log = Path(folder, f"{kind}-{time.monotonic_ns()}.log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            Job(0.0, kind, steps).command,
            env={**agent.environment(), **env},
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=SCRIPTS,
        )
    return process, log


def count_steps(agent: FakeAgent, folder: str) -> dict[str, Any]:
    """Steps that the watcher saw, of those done."""
    running = {kind: start(agent, kind, steps, folder) for kind, steps in COUNTED}
    counts = {}
    for kind, (process, log) in running.items():
        code = process.wait(timeout=120)
        answer = agent.last.get(process.pid, {})
        done = (read_steps(log.read_text(errors="replace")) or [(0.0, 0)])[-1][1]
        counts[kind] = {name: answer.get(name) for name in ("steps", "unit", "total", "peak_gb")}
        counts[kind] |= {"done": done, "code": code}
        if code:
            counts[kind]["end"] = log.read_text(errors="replace")[-400:]
    return counts


def freeze_and_look(agent: FakeAgent, folder: str) -> dict[str, Any]:
    """Two side by side: counters of each, and the speed of one while the other is frozen."""
    first, _ = start(agent, "transformer", 10**6, folder)
    two, _ = start(agent, "mlp", 10**6, folder)
    try:
        wait_for_steps(agent, [first.pid, two.pid])
        time.sleep(2.0)
        devices = ObservedDevices(())
        devices.utilisation([first.pid, two.pid])
        measured: dict[str, Any] = {
            "together": [agent.rate(pid, 2.0) for pid in (first.pid, two.pid)]
        }
        measured["memory_gb"] = [devices.most_memory_gb([pid]) for pid in (first.pid, two.pid)]
        measured["sm_both"] = devices.utilisation([first.pid, two.pid])
        time.sleep(1.0)
        measured["sm_first"] = devices.utilisation([first.pid])
        began = time.perf_counter()
        os.kill(two.pid, signal.SIGSTOP)
        measured["freeze_ms"] = 1000 * (time.perf_counter() - began)
        time.sleep(0.5)
        measured["first_alone"] = agent.rate(first.pid, 2.0)
        os.kill(two.pid, signal.SIGCONT)
        time.sleep(0.5)
        measured["second_after"] = agent.rate(two.pid, 1.5)
        measured["suspend"] = suspend(first.pid, devices)
        time.sleep(0.7)
        measured["first_after_suspend"] = agent.rate(first.pid, 2.0)
        return measured
    finally:
        for process in (first, two):
            process.kill()
            process.wait()


def suspend(pid: int, devices: ObservedDevices) -> dict[str, Any]:
    """With the driver, to host memory and back."""
    cuda = ctypes.CDLL("libcuda.so.1")
    codes: dict[str, Any] = {"init": cuda.cuInit(0)}
    for name in ("Lock", "Checkpoint", "Restore", "Unlock"):
        call = getattr(cuda, f"cuCheckpointProcess{name}", None)
        if call is None:
            return {**codes, "missing": name}
        began = time.perf_counter()
        codes[name.lower()] = [call(ctypes.c_int(pid), None), round(time.perf_counter() - began, 2)]
        if name == "Checkpoint":
            codes["memory_gb"] = devices.most_memory_gb([pid])
    return codes


def share_by_mps(agent: FakeAgent, folder: str) -> dict[str, Any]:
    """Two clients of a daemon of our own: memory by process, and their speeds."""
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/mps",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/mps-log",
    }
    for path in env.values():
        Path(path).mkdir(exist_ok=True)
    control = ["nvidia-cuda-mps-control"]
    whole = {**os.environ, **env}
    subprocess.run([*control, "-d"], env=whole, check=True, timeout=20)
    processes = [start(agent, kind, 10**6, folder, **env)[0] for kind in ("mlp", "transformer")]
    pids = [process.pid for process in processes]
    try:
        wait_for_steps(agent, pids)
        time.sleep(1.0)
        devices = ObservedDevices(())
        rates = {
            "together": [agent.rate(pid, 2.0) for pid in pids],
            "memory_gb": [devices.most_memory_gb([pid]) for pid in pids],
            "sm": devices.utilisation(pids),
        }
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(0.5)
        rates["first_alone"] = agent.rate(pids[0], 1.5)
        os.kill(pids[1], signal.SIGCONT)
        return rates
    finally:
        for process in processes:
            process.kill()
            process.wait()
        subprocess.run(control, input="quit\n", text=True, env=whole, check=False, timeout=30)


def wait_for_steps(agent: FakeAgent, pids: list[int]) -> None:
    """Until all of them train."""
    until = time.time() + 40.0
    while not all(pid in agent.last for pid in pids):
        if time.time() > until:
            raise TimeoutError("nothing was counted")
        time.sleep(0.1)


def main() -> int:
    """Everything, each part whatever became of those before it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        agent = FakeAgent(folder)
        parts: dict[str, Callable[[FakeAgent, str], dict[str, Any]]] = {
            "count": count_steps,
            "freeze": freeze_and_look,
            "mps": share_by_mps,
        }
        for name, part in parts.items():
            began = time.time()
            try:
                measured = part(agent, folder)
            except Exception as error:  # a probe tells what does not work
                measured = {"error": repr(error)}
            print(f"{name} ({time.time() - began:.0f} s): {json.dumps(measured)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
