"""Ways to run a mix: one job at a time, all as they arrive, the same waiting for memory, Weft."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.any_job.kinds import SCRIPTS, Job, sleep_until
from weft.wire.memory_waits import add_guard, find_library

LIMIT_S = 1200.0
ENDED = ("succeeded", "finished", "failed", "cancelled")
OUT_OF_MEMORY = ("OutOfMemoryError", "out of memory", "CUDA_ERROR_OUT_OF_MEMORY")


@dataclass
class Outcome:
    """What became of one job; times count from the start of the mix."""

    job: Job
    ended: float = 0.0
    ok: bool = False
    text: str = ""
    restarts: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def took(self) -> float:
        """From its arrival to its end."""
        return self.ended - self.job.at

    @property
    def out_of_memory(self) -> bool:
        """Whether its owner saw it fail for memory."""
        return not self.ok and any(word in self.text for word in OUT_OF_MEMORY)


def one_at_a_time(jobs: list[Job]) -> list[Outcome]:
    """Each alone, in the order they came: measured one after the other without the gaps."""
    free, outcomes = 0.0, []
    for job in jobs:
        began = time.time()
        run = subprocess.run(
            job.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=SCRIPTS,
            env=plain_environment(),
            check=False,
        )
        free = max(free, job.at) + time.time() - began
        outcomes.append(Outcome(job, free, run.returncode == 0, run.stdout))
        print(f"  alone {job.kind}: {time.time() - began:.1f} s", flush=True)
    return outcomes


def all_waiting(jobs: list[Job], limit_s: float = LIMIT_S) -> list[Outcome]:
    """Each started when it arrives, and those whose memory is not free wait inside a call."""
    with guard_variables() as guard:
        return all_at_once(jobs, guard, limit_s)


@contextmanager
def guard_variables() -> Iterator[dict[str, str]]:
    """Variables of processes whose allocations wait, with a book of their own."""
    library = find_library()
    if library is None:
        raise RuntimeError("the memory guard is not compiled: python packages/weft/build_native.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "book")
        command = [sys.executable, "-m", "weft.node.memory", str(path), "--state", folder]
        book = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while not path.is_socket():
                if book.poll() is not None:
                    raise RuntimeError(f"the book ended with {book.returncode}")
                time.sleep(0.05)
            yield add_guard(library, str(path), 0.0, {})
        finally:
            book.terminate()
            book.wait()


def all_at_once(
    jobs: list[Job], env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
) -> list[Outcome]:
    """Each started when it arrives, with nobody to look after them.

    What has not ended after `limit_s` is killed.
    """
    outcomes = [Outcome(job) for job in jobs]
    with tempfile.TemporaryDirectory() as folder:
        began, running = time.time(), list[tuple[Outcome, subprocess.Popen[bytes], Path]]()
        waiting = list(enumerate(outcomes))
        while waiting or running:
            while waiting and time.time() - began >= waiting[0][1].job.at:
                number, outcome = waiting.pop(0)
                log = Path(folder, f"{number}.log")
                with log.open("wb") as out:
                    process = subprocess.Popen(
                        outcome.job.command,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        cwd=SCRIPTS,
                        env={**plain_environment(), "WEFT_JOB": f"job-{number}", **(env or {})},
                    )
                running.append((outcome, process, log))
            late = time.time() - began > limit_s
            for _, process, _ in running if late else ():
                process.kill()
            for entry in [started for started in running if started[1].poll() is not None]:
                outcome, process, log = entry
                outcome.ended = time.time() - began
                outcome.ok, outcome.text = process.returncode == 0, log.read_text(errors="replace")
                if late:
                    outcome.notes.append(f"it had not ended after {limit_s:g} s")
                running.remove(entry)
            time.sleep(0.05)
    return outcomes


def by_weft(jobs: list[Job], flags: list[str], limit_s: float = LIMIT_S) -> list[Outcome]:
    """Submitted to a service as they arrive, with a command and one GPU and nothing else."""
    with service(flags) as port:
        began, names = time.time(), []
        for job in jobs:
            sleep_until(began + job.at)
            names.append(submit(port, job.command, job.slowdown))
        outcomes = [Outcome(job) for job in jobs]
        wait_for(port, names, limit_s)
        for outcome, name in zip(outcomes, names, strict=True):
            answer = call(port, f"/jobs/{name}")
            outcome.ended = (answer.get("ended") or time.time()) - began
            outcome.ok = answer["state"] in ("succeeded", "finished")
            outcome.restarts = int(answer.get("restarts") or 0)
            outcome.text = read_log(port, name)
            if not outcome.ok:
                outcome.notes.append(str(answer.get("reason") or answer.get("error") or ""))
                print(f"  {name} {outcome.job.kind}: {answer['state']} {outcome.notes}", flush=True)
        return outcomes


@contextmanager
def service(flags: list[str]) -> Iterator[int]:
    """A fresh service on loopback; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder, "service.log")
        command = [sys.executable, "-m", "weft", "serve", *flags]
        command += ["--state", f"{folder}/state", "--port", str(port)]
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_ready(port, process, log)
            yield port
        except BaseException:
            print(log.read_text()[-4000:], flush=True)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def submit(port: int, command: list[str], slowdown: float | None = None) -> str:
    """As `weft submit --gpus 1 [--share slowdown=1.3] -- COMMAND`."""
    body: dict[str, Any] = {"command": command, "workdir": str(SCRIPTS), "gpus": 1}
    if slowdown is not None:
        body["share"] = {"slowdown": slowdown}
    return str(call(port, "/jobs", body)["id"])


def wait_for(port: int, names: list[str], limit_s: float = LIMIT_S) -> None:
    """Until all have ended; what has not after `limit_s` is left as it is."""
    until = time.time() + limit_s
    while time.time() < until:
        states = [call(port, f"/jobs/{name}")["state"] for name in names]
        if all(state in ENDED for state in states):
            return
        time.sleep(0.5)


def call(port: int, path: str, body: Any = None, *, text: bool = False) -> Any:
    """The service's answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        content = answer.read().decode(errors="replace")
    return content if text else json.loads(content)


def read_log(port: int, name: str) -> str:
    """What a job has printed; nothing before it has begun."""
    try:
        return str(call(port, f"/jobs/{name}/logs?rank=0", text=True))
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return ""


def wait_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the service answers."""
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the service did not start:\n{log.read_text()[-3000:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError("the service does not answer")


def plain_environment() -> dict[str, str]:
    """The same that jobs get from a service."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
