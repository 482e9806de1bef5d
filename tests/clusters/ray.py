"""A Ray cluster of several nodes on this machine, in a network namespace of its own.

    python -m tests.clusters.ray up FOLDER [NAME:KIND:GPUS ...]
    python -m tests.clusters.ray run FOLDER COMMAND ...
    python -m tests.clusters.ray down FOLDER

Ray listens on every interface of a host, so the namespace is what keeps others out; it needs root.
Each node is one `ray start --block`, which ends all its processes with itself; nothing is ended
by name.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from weft.engines.attempts.own_processes import spawn_command
from weft.engines.ray.starting import (
    NodeSetup,
    head_command,
    make_token,
    ray_environment,
    worker_command,
)
from weft.wire.processes import descendants, kill_all, start_time

PORT = 26379
ADDRESS = f"127.0.0.1:{PORT}"
CLONE_NEWNET = 0x40000000
BEGIN_S, END_S = 300.0, 20.0
NODES = ("a1:a100:2", "a2:a100:2")


@cache
def why_not() -> str:
    """Why a cluster cannot be brought up here; empty if it can."""
    if os.geteuid() != 0:
        return "a network namespace of its own needs root"
    if missing := [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]:
        return f"{missing[0]} is not installed: apt-get install util-linux iproute2"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        return "this machine gives nobody a network namespace of its own"
    return ""


@dataclass
class Node:
    """One `ray start`, as it was started."""

    name: str
    pid: int
    began: int


@dataclass
class ThrowAwayRay:
    """A cluster in `folder`, which must have a short path: Ray puts sockets there."""

    folder: Path
    holder: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    _described: dict[str, tuple[list[str], NodeSetup]] = field(default_factory=dict)

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def engine(self) -> str:
        """What `--engine` takes to use it."""
        return f"ray:address={ADDRESS},token={self.token},nodes=labelled"

    # ---- up and down

    def up(self, *nodes: str) -> None:
        """Begin the namespace, a head that runs no jobs, and nodes `NAME:KIND:GPUS`."""
        self.begin()
        make_token(self.token)
        head = NodeSetup("", cpus=2, ip="127.0.0.1", port=PORT, temp=str(self.folder))
        self._start("head", head_command(head), head)
        self._wait_for(lambda: self._has_begun("head"), "the head")
        for text in nodes or NODES:  # one after the other: Ray would give two the same sockets
            name = self.add(text).name
            self._wait_for(lambda name=name: self._has_begun(name), name)  # type: ignore[misc]
        self.save()

    def begin(self) -> None:
        """The namespace alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["unshare", "--net", "sh", "-c", "ip link set lo up && exec sleep infinity"]
        self.holder = spawn_command(command, self.folder / "holder.log", os.environ)
        self._wait_for(self._loopback_is_up, "the namespace")

    def add(self, text: str, own: str = "") -> Node:
        """One more node, `NAME:KIND:GPUS`; without GPUs it has four slots."""
        name, kind, gpus = text.split(":")
        slots = 0 if int(gpus) else 4
        setup = NodeSetup(
            name, kind, int(gpus), slots, cpus=4, ip="127.0.0.1", own=own, leave_s=20.0
        )
        return self._start(name, worker_command(setup, ADDRESS), setup)

    def down(self) -> None:
        """End every process by its pid, workers before the head, and the namespace."""
        for node in reversed([*self.nodes.values()]):
            if start_time(node.pid) == node.began:
                kill_all([node.pid, *descendants(node.pid)])
                self._reap(node.pid)
        if self.holder and start_time(self.holder) is not None:
            os.kill(self.holder, signal.SIGKILL)
            self._reap(self.holder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, name: str) -> None:
        """Its raylet dies, and Ray's other processes of the node with that, as Ray has it."""
        node = self.nodes.pop(name)
        if start_time(node.pid) != node.began:
            return
        rest = descendants(node.pid)
        kill_all([self._process_of(node, "raylet")])
        self._reap(node.pid)
        kill_all([pid for pid in rest if start_time(pid) is not None])

    def restore(self, name: str) -> None:
        """The same machine, switched on again."""
        self._start(name, *self._described[name])

    def stop_controller(self) -> None:
        """Make the head's controller stand still: it answers nobody."""
        os.kill(self.head_process("gcs_server"), signal.SIGSTOP)

    def start_controller(self) -> None:
        """Let it go on."""
        os.kill(self.head_process("gcs_server"), signal.SIGCONT)

    def leave(self, name: str) -> None:
        """Ask a node to leave in good order."""
        os.kill(self.nodes[name].pid, signal.SIGTERM)

    def head_process(self, name: str) -> int:
        """A process of the head, such as gcs_server."""
        return self._process_of(self.nodes["head"], name)

    # ---- from inside

    def inside(self, *command: str) -> list[str]:
        """A command, in the cluster's namespace."""
        return ["nsenter", f"--net=/proc/{self.holder}/ns/net", *command]

    def environment(self) -> dict[str, str]:
        """What a process needs to speak to the cluster."""
        return ray_environment(self.token)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Whatever this thread starts inside is in the cluster's namespace."""
        before, there = Path("/proc/self/ns/net"), Path(f"/proc/{self.holder}/ns/net")
        with before.open() as back, there.open() as inside:
            _set_namespace(inside.fileno())
            try:
                yield
            finally:
                _set_namespace(back.fileno())

    def save(self) -> None:
        body = {name: [node.pid, node.began] for name, node in self.nodes.items()}
        (self.folder / "pids.json").write_text(json.dumps({"holder": self.holder, "nodes": body}))

    @classmethod
    def load(cls, folder: Path) -> ThrowAwayRay:
        body = json.loads((folder / "pids.json").read_text())
        nodes = {name: Node(name, pid, began) for name, (pid, began) in body["nodes"].items()}
        return cls(folder, body["holder"], nodes)

    # ---- parts

    def _start(self, name: str, command: list[str], setup: NodeSetup) -> Node:
        own = {"HOSTNAME": name, "WEFT_NODE_STATE": str(self.folder / f"{name}-files")}
        env = {**os.environ, **ray_environment(self.token, setup), **own}
        pid = spawn_command(self.inside(*command), self.folder / f"{name}.log", env)
        node = Node(name, pid, start_time(pid) or 0)
        self.nodes[name], self._described[name] = node, (command, setup)
        return node

    def _process_of(self, node: Node, name: str) -> int:
        for pid in descendants(node.pid):
            if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0].endswith(name):
                return pid
        raise LookupError(f"{node.name} has no {name}")

    def _has_begun(self, name: str) -> bool:
        if "Ray runtime started" in (self.folder / f"{name}.log").read_text():
            return True
        node = self.nodes[name]
        if start_time(node.pid) != node.began:  # Ray itself gives up after 30 s
            self._reap(node.pid)
            self._start(name, *self._described[name])
        return False

    def _loopback_is_up(self) -> bool:
        done = subprocess.run(
            self.inside("ip", "-o", "link", "show", "lo", "up"), capture_output=True, check=False
        )
        return b"lo" in done.stdout

    def _wait_for(self, there: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + BEGIN_S
        while not there():
            if time.monotonic() > until:
                self.down()
                raise TimeoutError(f"{what} did not begin within {BEGIN_S:g} s")
            time.sleep(0.2)

    def _reap(self, pid: int) -> None:
        until = time.monotonic() + END_S
        while start_time(pid) is not None and time.monotonic() < until:
            time.sleep(0.05)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            return  # another process of ours had started it


def _set_namespace(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def throw_away_ray(*nodes: str) -> Iterator[ThrowAwayRay]:
    """A cluster for as long as the block lasts; what is started inside reaches it."""
    cluster = ThrowAwayRay(Path(tempfile.mkdtemp(prefix="wr-", dir="/tmp")))
    try:
        cluster.up(*nodes)
        with cluster.entered():
            yield cluster
    finally:
        cluster.down()


def main(action: str, folder: str, *rest: str) -> int:
    if action == "up":
        if why := why_not():
            sys.exit(why)
        ThrowAwayRay(Path(folder).absolute()).up(*rest)
        return 0
    cluster = ThrowAwayRay.load(Path(folder).absolute())
    if action == "down":
        cluster.down()
        return 0
    env = {**os.environ, **cluster.environment(), "RAY_ADDRESS": ADDRESS}
    return subprocess.run(cluster.inside(*rest), env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
