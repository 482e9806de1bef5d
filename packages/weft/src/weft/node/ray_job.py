"""A Ray cluster of a job's own, on the GPUs that it was given, and a command that drives it.

    weft submit --gpus 8 -- python -m weft.node.ray_job python -m vision.tune

Weft starts this once on each node of the job. Rank 0's node becomes the head; when all nodes are
there the command runs on it, as a driver of that cluster, and the cluster ends with it. No user
connects without the token, which nodes find beside the job's checkpoints.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.base.environment import Environment
from weft.base.errors import WireError
from weft.frozen import frozen
from weft.node.ranks.command_plan import LOOPBACK, find_free_port
from weft.wire.processes import die_with_parent

MEET_S = 300.0  # for all nodes to be there
LEAVE_S = 10.0
PAUSE_S = 0.5
LOST = 5  # the exit code of a node that was left without its own part of Ray
# No workers before anyone asks for them: a busy machine has Ray's own processes to start first.
QUIET = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
# A cluster around this job, if there is one, is not the job's.
OF_OTHERS = ("RAY_ADDRESS", "RAY_JOB_ID", "RAY_NODE_ID", "RAY_RAYLET_PID", "RAY_AUTH_TOKEN")


@frozen
class OwnNode:
    """The part of one node in the cluster."""

    env: Environment
    number: int
    cpus: int
    gpus: int

    @classmethod
    def read(cls) -> OwnNode:
        """Read the node's part of the job from the variables that Weft starts a command with."""
        env = Environment.read()
        if not env.master_port:
            raise WireError("this is started by Weft: `weft submit -- python -m weft.node.ray_job`")
        devices = int(os.environ.get("WEFT_GPUS", "1"))
        real = bool(os.environ.get("CUDA_VISIBLE_DEVICES")) and env.kind != "cpu"
        cpus = round(env.cpus * devices) if real else devices
        node = int(os.environ.get("WEFT_NODE_RANK", "0"))
        return cls(env, node, max(cpus, 1), devices if real else 0)

    @property
    def address(self) -> str:
        """The address of the head."""
        return f"{self.env.master_addr}:{self.env.master_port}"

    @property
    def token(self) -> Path:
        """The file of the token of this attempt's cluster."""
        folder = Path(self.env.checkpoints or tempfile.gettempdir())
        return folder / f".ray-token-{self.env.attempt}"

    def command(self, temp: str) -> list[str]:
        """One process that has all of Ray's on this node, and ends them with itself."""
        head = [
            *("--head", f"--port={self.env.master_port}", f"--temp-dir={temp}"),
            *("--include-dashboard=false", f"--ray-client-server-port={find_free_port()}"),
        ]
        # Of the head this is what others know; on loopback all nodes are one machine.
        known = not self.number or self.env.master_addr == LOOPBACK
        return [
            *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block"),
            *("--disable-usage-stats", f"--num-cpus={self.cpus}", f"--num-gpus={self.gpus}"),
            *([f"--address={self.address}"] if self.number else head),
            *([f"--node-ip-address={self.env.master_addr}"] if known else []),
            *("--min-worker-port=0", "--max-worker-port=0"),  # others may have a Ray here
        ]


def main(command: Sequence[str]) -> int:
    """The exit code of the command on the first node; 0 on others when the cluster has ended."""
    if not command:
        raise SystemExit("usage: python -m weft.node.ray_job COMMAND ...")
    node = OwnNode.read()
    for name in OF_OTHERS:
        os.environ.pop(name, None)
    os.environ |= {"RAY_AUTH_MODE": "token", **QUIET}
    temp = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets need a short path
    try:
        return _follow(node, temp) if node.number else _lead(node, temp, command)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _lead(node: OwnNode, temp: str, command: Sequence[str]) -> int:
    token = _write(Path(temp, "token"), secrets.token_hex(32))
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    ray = _Ray(node.command(temp))
    try:
        workers = _wait_for_all(node, ray, lambda: _write(node.token, token.read_text()))
        env = {**os.environ, "RAY_ADDRESS": node.address, "WEFT_WORKERS": str(workers)}
        driver = subprocess.Popen(command, env=env)  # noqa: S603 - what the person submitted
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, lambda which, _: driver.send_signal(which))
        code = driver.wait()
        return code if code >= 0 else 128 - code
    finally:
        ray.end()
        node.token.unlink(missing_ok=True)


def _follow(node: OwnNode, temp: str) -> int:
    _until(node.token.exists, "its token: do all nodes have the folder of checkpoints?")
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(node.token)
    ray = _Ray(node.command(temp))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    until = time.monotonic() + MEET_S
    try:
        while _listens(node):
            if not ray.runs(again=time.monotonic() < until):
                return LOST
            time.sleep(PAUSE_S)
        return 0
    finally:
        ray.end()


def _write(path: Path, text: str) -> Path:
    """There for its owner alone, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    return fresh.replace(path)


def _wait_for_all(node: OwnNode, process: _Ray, invite: Callable[[], object]) -> int:
    """The number of workers that fit: the cluster's GPUs, or its CPU slots where it has none.

    Others are invited when the head answers: one that comes before it does is sent away.
    """
    import ray

    def connected() -> bool:
        if not process.runs(again=True) or not _listens(node):
            return False
        try:
            ray.init(address=node.address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError):  # it listens before it answers
            ray.shutdown()
            return False
        return True

    def all_there() -> bool:
        return sum(bool(member["Alive"]) for member in ray.nodes()) >= node.env.nodes

    _until(connected, "the head of the job's Ray")
    try:
        invite()
        _until(all_there, f"{node.env.nodes} nodes of the job's Ray")
        total = ray.cluster_resources()
    finally:
        ray.shutdown()
    return int(total.get("GPU", 0) or total.get("CPU", 1))


class _Ray:
    """All of Ray's on this node: one process that ends the others with itself."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - Ray's own command
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,  # Ctrl-C is for the driver
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # there are no other threads
        )

    def runs(self, *, again: bool) -> bool:
        """True if it runs; started `again` if not: on a busy machine Ray gives up soon."""
        if self._process.poll() is not None and again:
            time.sleep(PAUSE_S)
            self._process = self._start()
        return self._process.poll() is None

    def end(self) -> None:
        """Nothing of it is left, or what is left ends with the attempt."""
        self._process.terminate()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _listens(node: OwnNode) -> bool:
    try:
        with socket.create_connection((node.env.master_addr, node.env.master_port), 5.0):
            return True
    except OSError:
        return False


def _until(true: Callable[[], object], what: str) -> None:
    until = time.monotonic() + MEET_S
    while not true():
        if time.monotonic() > until:
            raise WireError(f"gave up after {MEET_S:g} s waiting for {what}")
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
