"""A service of one's own for a while: a process on loopback that ends with us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from weft.cli.connect.client import ServiceClient
from weft.core.errors import EngineError

READY_S = 120.0
LEAVE_S = 20.0
LOOPBACK = "127.0.0.1"


@dataclass
class ServiceLifetime:
    """Fate of a service after the process that started it; `pid` is the service's process."""

    wanted: bool = False
    pid: int = 0


@contextmanager
def own_service(
    state: Path, port: int, *more: str, stay: ServiceLifetime | None = None
) -> Iterator[ServiceClient]:
    """A client of `weft serve` with its state in `state`; it is asked to leave at the end.

    Unless it is to `stay`, and nothing went wrong.
    For the main thread: a signal to end us is a KeyboardInterrupt inside.
    """
    log = state / "service.log"
    state.mkdir(parents=True, exist_ok=True)
    port = port if is_free(port) else free_port()
    command = [sys.executable, "-m", "weft", "serve", "--host", LOOPBACK, "--port", str(port)]
    with log.open("ab") as out:
        service = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--state", str(state), *more],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C is for us; we tell it when to leave
            env={**os.environ, "WEFT_TOKEN": ""},
        )
    stays = stay or ServiceLifetime()
    stays.pid = service.pid
    try:
        with signals_as_ctrl_c():
            client = ServiceClient(f"http://{LOOPBACK}:{port}", token="")
            wait_for(client, service, log)
            yield client
    except BaseException:
        stays.wanted = False
        raise
    finally:
        if not stays.wanted:
            stop(service)


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """A signal that ends this process, or a closed terminal, counts as Ctrl-C."""
    before = {which: signal.signal(which, _interrupt) for which in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def wait_for(client: ServiceClient, service: subprocess.Popen[bytes], log: Path) -> None:
    """Until the service answers; raises EngineError with what it said if it will not."""
    deadline = time.monotonic() + READY_S
    while not client.healthy():
        if service.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise EngineError(
                f"the service did not start: {last_words(lines)}", hint=f"all it said: {log}"
            )
        time.sleep(0.1)


def last_words(lines: Sequence[str]) -> str:
    """The error among what a service printed, or the last line."""
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or list(lines) or ["it said nothing"])[-1]


def stop(service: subprocess.Popen[bytes]) -> None:
    """Ask it to leave, then insist."""
    with suppress(ProcessLookupError):
        service.terminate()
    try:
        service.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()


def is_free(port: int) -> bool:
    """Return true if nothing listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Any port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
