"""Makes this machine one more node of a Ray cluster, until it is asked to leave."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from weft.core.errors import EngineError, InvalidConfig
from weft.engines.ray.starting import NodeSetup, ray_environment, worker_command
from weft.frozen import frozen
from weft.wire.processes import die_with_parent

UNIT = "weft-join.service"
LOOK_S = 0.2  # between two looks whether the cluster lists it
MORE_S = 30.0  # beyond the time to leave, before a service manager ends it
Say = Callable[[str], None]


FIRST_S, MOST_S = 2.0, 60.0  # pauses before it is tried again, which double
REFUSED = ("token", "uthenticat", "version")  # words of Ray for what another try does not change


@frozen
class JoinOutcome:
    """The outcome: the exit code, and what Ray said last where it went wrong.

    `listed` is whether the cluster had this node.
    """

    code: int
    reason: str
    listed: bool = False

    @property
    def may_change(self) -> bool:
        """True if the head may take this node later."""
        return self.listed or not any(word in self.reason for word in REFUSED)


class Leaving:
    """Signals to us, which make this node leave, or end a pause."""

    def __init__(self, setup: NodeSetup, say: Say) -> None:
        self._setup, self._say = setup, say
        self._count = 0
        self._asked = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._leave)

    @property
    def asked(self) -> bool:
        """True once a signal came."""
        return self._asked.is_set()

    def pause(self, seconds: float) -> None:
        """Wait that long, or until a signal comes."""
        self._asked.wait(seconds)

    def _leave(self, _number: int, _frame: object) -> None:
        self._count += 1
        self._asked.set()
        if self.process is None:
            return
        if self._count == 1:
            left_s = self._setup.leave_s
            self._say(f"{self._setup.name} leaves; its jobs have {left_s:g} s to save and move")
            self.process.terminate()
        else:
            self.process.kill()


def stay_joined(
    try_once: Callable[[], JoinOutcome], leaving: Leaving, what: str, say: Say
) -> JoinOutcome:
    """Be a node again and again until a signal comes; an outcome that cannot change ends it.

    A head that is away for a while finds the same node again.
    """
    pause_s = FIRST_S
    while True:
        done = try_once()
        if leaving.asked or not done.may_change:
            return done
        pause_s = FIRST_S if done.listed else pause_s
        why = "the cluster went away" if done.listed else done.reason
        say(f"waits for {what}: {why}; tries again in {pause_s:g} s")
        leaving.pause(pause_s)
        if leaving.asked:
            return JoinOutcome(0, "")
        pause_s = min(2.0 * pause_s, MOST_S)


def check_address(text: str) -> str:
    """HOST:PORT of a head; InvalidConfig if it is something else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidConfig(
            f"{text!r} is not the address of a Ray head",
            hint="it is HOST:PORT, as `weft serve --engine ray` prints it",
        )
    return text


def join(setup: NodeSetup, address: str, token: Path, leaving: Leaving, say: Say) -> JoinOutcome:
    """Be a node until a signal comes or the cluster goes; then leave in good order.

    SIGTERM and SIGINT make it leave: it notifies the cluster, jobs here save and move, and Ray's
    processes end when they have or their time is over. A second signal ends them at once.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - Ray's own command
            worker_command(setup, address),
            env={**os.environ, **ray_environment(token, setup)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us: Ray would drop its jobs
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # there are no other threads
        )
        leaving.process = process
        with _asking(setup, address, token) as asking:
            code = _wait(process, asking)
            listed = code is None and asking.returncode == 0
            if code is None and not leaving.asked:
                say(_describe(setup, address, listed=listed))
        code = process.wait() if code is None else code
        leaving.process = None
        log.seek(0)
        output = log.read().decode(errors="replace")
    if leaving.asked:
        say(f"{setup.name} has left")
        return JoinOutcome(0, "", listed)
    return JoinOutcome(code or 1, _why(output), listed)


def _describe(setup: NodeSetup, address: str, *, listed: bool) -> str:
    if listed:
        return f"{setup.name} is a node of {address}; Ctrl-C makes it leave"
    return f"{setup.name} has started, but {address} does not say whether it is a node there"


@contextmanager
def _asking(setup: NodeSetup, address: str, token: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends well once the cluster lists this node."""
    process = subprocess.Popen(  # noqa: S603 - a module of ours
        [sys.executable, "-P", "-m", "weft.engines.ray.listed", address, setup.name],
        env={**os.environ, **ray_environment(token)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(signal.SIGKILL),  # there are no other threads
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], asking: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a node that ended before it was known whether it is one, else None."""
    while asking.poll() is None:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    return None


def _why(output: str) -> str:
    """The reason in Ray's output, as far as it gives one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "ailed" in line]
    return (telling or lines or ["it said nothing"])[-1][-400:]


def unit_text(command: Sequence[str], address: str, leave_s: float, *, system: bool) -> str:
    """A systemd unit that makes this machine join at every boot."""
    target = "multi-user.target" if system else "default.target"
    return f"""[Unit]
Description=Weft: this machine in the cluster at {address}
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={shlex.join(command)}
Restart=always
RestartSec=10
KillMode=mixed
TimeoutStopSec={leave_s + MORE_S:g}

[Install]
WantedBy={target}
"""


def unit_path(*, system: bool) -> Path:
    """The file where systemd looks for it: the system's units, or a user's own."""
    if system:
        return Path("/etc/systemd/system", UNIT)
    return Path.home() / ".config" / "systemd" / "user" / UNIT


def write_unit(path: Path, text: str) -> str:
    """Write a unit; the command that switches it on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}") from error
    user = "" if path.is_relative_to("/etc") else " --user"
    also = "" if not user else " && loginctl enable-linger"
    return f"systemctl{user} daemon-reload && systemctl{user} enable --now {UNIT}{also}"
