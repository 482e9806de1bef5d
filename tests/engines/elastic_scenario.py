"""The elastic training example on any engine of several nodes: resized, cut off, adopted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port
from tests.waiting import wait_until
from weft.cli.connect.client import ServiceClient
from weft.service.responses.answers import JobAnswer, Made
from weft.wire.attempt import CLAIM, folder_of

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "train" / "image.py"
LIMIT_S = 900.0
SECOND_EPOCH = 64  # steps: an epoch has 8 to 32


@dataclass
class Service:
    """`weft serve` in a process of its own, that can be killed and started again."""

    state: Path
    options: tuple[str, ...]
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> ServiceClient:
        return ServiceClient(f"http://127.0.0.1:{self.port}", token="")

    def start(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "weft", "serve", "--port", str(self.port)]
        with (self.state / "service.log").open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--state", str(self.state), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, "WEFT_TOKEN": ""},
            )
        process = self._process
        wait_until(lambda: process.poll() is not None or self.client.healthy(), "it answers")
        assert process.poll() is None, (self.state / "service.log").read_text()[-2000:]

    def end(self, how: int = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(LIMIT_S)

    def job(self, name: str) -> JobAnswer:
        return self.client.get(JobAnswer, f"/jobs/{name}")

    def epochs(self, name: str, attempt: int) -> list[int]:
        """Those that rank 0 has printed the accuracy of."""
        logs = [*folder_of(self.state, name, attempt).rglob("rank-0.log")]
        return [int(n) for log in logs for n in re.findall(r"epoch (\d+):", log.read_text())]

    def agents(self, name: str, attempt: int) -> dict[str, str]:
        """The agent of each node of an attempt: another one would have another claim."""
        claims = folder_of(self.state, name, attempt).rglob(CLAIM)
        return {claim.parent.name: claim.read_text() for claim in claims}


def train_through_it_all(
    engine: str, state: Path, kill_node: Callable[[str], None], policy: str = "sia:interval=3"
) -> None:
    """Grown while it runs, its service killed, a node killed: it goes on from its checkpoint."""
    service = Service(state, ("--engine", engine, "--policy", policy))
    service.start()
    try:
        name = submit(service.client, state)
        wait_until(lambda: size(service.job(name)) >= 2, "it was grown")
        wait_until(lambda: bool(service.epochs(name, service.job(name).attempt)), "it trains")

        _restart_service(service, name)
        _lose_a_node(service, name, kill_node)

        service.client.delete(f"/jobs/{name}")
        wait_until(lambda: not any((state / "live").glob("*")), "nothing of it is left")
    finally:
        service.end()


def _restart_service(service: Service, name: str) -> None:
    """What runs is found again by the next service, and not started again."""

    def unchanged() -> bool:
        """A kill that happens to come in a resize shows nothing: look for a calm moment."""
        before = service.job(name)
        if before.state != "running":
            return False
        agents = service.agents(name, before.attempt)
        service.end(signal.SIGKILL)
        service.start()
        after = service.job(name)
        if after.attempt != before.attempt or after.state != "running":
            return False
        now = service.agents(name, after.attempt)  # some may have joined since
        assert agents.items() <= now.items()
        return bool(agents)

    wait_until(unchanged, "it was adopted")


def _lose_a_node(service: Service, name: str, kill_node: Callable[[str], None]) -> None:
    def is_saved() -> bool:
        job = service.job(name)
        return bool(running_where(job)) and (job.saved_step or 0) >= SECOND_EPOCH

    wait_until(is_saved, "its first epoch is behind its checkpoint")
    before = service.job(name)
    lost = running_where(before)[0]
    kill_node(lost)

    def goes_on_elsewhere() -> bool:
        now = service.job(name)
        where = running_where(now)
        assert now.state not in ("failed", "cancelled"), now.reason
        elsewhere = bool(where) and lost not in where and now.attempt > before.attempt
        return elsewhere and bool(service.epochs(name, now.attempt))

    wait_until(goes_on_elsewhere, "it goes on elsewhere")
    now = service.job(name)
    assert min(service.epochs(name, now.attempt)) > 0, "it began from the beginning"


def submit(client: ServiceClient, folder: Path, epochs: int = 100_000) -> str:
    body = {
        "command": [sys.executable, str(SCRIPT)],
        "workdir": str(folder),
        "gpus": {"min": 1, "max": 4},
        "batch": {"init": 64, "max": 256, "max_per_gpu": 256},
        "env": {"EPOCHS": str(epochs)},
    }
    return client.post(Made, "/jobs", body).id


def size(job: JobAnswer) -> int:
    return sum(len(part.gpus) for part in job.allocation or ())


def running_where(job: JobAnswer) -> list[str]:
    return [part.node for part in job.allocation or ()] if job.state == "running" else []
