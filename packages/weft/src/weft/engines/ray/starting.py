"""Start of a Ray node, as the head or as one more, and the token of its cluster.

The command is `ray start --block`: one process that has all of a node's, ends them with itself,
and on SIGTERM first tells the cluster that the node leaves and waits for its jobs to move.

It goes on when the service ends, as jobs do.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.core.errors import EngineError, InvalidConfig
from weft.engines.attempts.own_processes import reap, spawn_command
from weft.engines.machine.devices import find_gpus, kind_of
from weft.engines.ray.labels import KIND, NODE, SLOTS, check_label
from weft.engines.ray.runner import OWN
from weft.frozen import frozen
from weft.wire.attempt import read_json, write_whole
from weft.wire.processes import alive, find_tagged, kill_all, start_time

LONGEST = 4096  # bytes
WORD = re.compile(r"[!-~]+")  # what can be sent beside a request


def make_token(path: Path) -> Path:
    """A file that only its owner reads, with a random token; kept if there."""
    try:
        read_token(path)
        path.chmod(0o600)
    except InvalidConfig:
        write_token(path, secrets.token_hex(32))
    return path


def read_token(path: Path) -> str:
    """The token in a file; InvalidConfig if there is none."""
    if not path.is_file():
        raise InvalidConfig(f"there is no file {path}", hint="name the file of the cluster's token")
    try:
        with path.open("rb") as file:
            return check_token(file.read(LONGEST + 1))
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error


def check_token(content: bytes) -> str:
    """The token in a text, without space around it; InvalidConfig if it cannot be one."""
    token = content.decode("ascii", "replace").strip()
    if len(content) > LONGEST or not WORD.fullmatch(token):
        raise InvalidConfig(
            f"this is not the token of a cluster: {token[:20]!r}",
            hint="it is one word, in the file that `weft serve --engine ray` names",
        )
    return token


def write_token(path: Path, token: str) -> None:
    """Keep a token where only its owner reads it, there completely or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(token)
    fresh.replace(path)


PORT = 6379
LEAVE_S = 60.0  # what jobs have to save and move when their node leaves
STORE_BYTES = 200_000_000  # Ray's shared memory; Weft keeps no objects there
# A node that does not answer is given up after about five seconds instead of Ray's fourteen. Ray
# does not end processes when memory is short: jobs are held to theirs by their agents. And it
# keeps no workers ready: there is one runner a node.
SETTINGS = {
    "RAY_health_check_initial_delay_ms": "3000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}


@frozen
class NodeSetup:
    """One machine of a cluster; `gpus` are of one `kind`, without any it has CPU `slots`.

    One without a name is not for jobs of Weft where others have one.

    `ip` is its address for the others, empty for Ray to find; `port` that of the head. `cpus` 0 is
    one for each core. `temp` and `own` are folders: Ray's, and where it keeps files of jobs while
    it shares none with the service; empty for the usual ones.
    """

    name: str
    kind: str = ""
    gpus: int = 0
    slots: int = 0
    cpus: int = 0
    ip: str = ""
    port: int = PORT
    temp: str = ""
    own: str = ""
    leave_s: float = LEAVE_S
    store_bytes: int = STORE_BYTES


def find_setup(
    name: str = "",
    kind: str = "",
    gpus: int | None = None,
    slots: int = 0,
    ip: str = "",
    port: int = PORT,
) -> NodeSetup:
    """The set-up of this machine: as stated, and the rest as it is found."""
    there = find_gpus() if gpus is None else ()
    count = len(there) if gpus is None else gpus
    if not kind and count:
        kind = kind_of(there[0].name) if there else "gpu"
    name = name or socket.gethostname().split(".")[0]
    for what, text in (("name", name), ("kind", kind)):
        if text and not check_label(text):
            raise InvalidConfig(
                f"{what} {text!r} cannot be a label of Ray",
                hint=f"--{what} takes letters, digits, '-', '_' and '.', at most 63",
            )
    return NodeSetup(name, kind, count, 0 if count else slots or _cores(), ip=ip, port=port)


def head_command(setup: NodeSetup) -> list[str]:
    """Start a cluster with this machine as its first node."""
    own = ["--head", f"--port={setup.port}", "--include-dashboard=false"]
    return [*_ray(), *own, *_node_options(setup)]


def worker_command(setup: NodeSetup, address: str) -> list[str]:
    """Make this machine one more node of the cluster at `address`."""
    return [*_ray(), f"--address={address}", *_node_options(setup)]


def _ray() -> list[str]:
    return [sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block"]


def _node_options(setup: NodeSetup) -> list[str]:
    named = {NODE: setup.name, KIND: setup.kind}
    labels = ",".join(f"{name}={value}" for name, value in named.items() if value)
    options = [
        "--disable-usage-stats",
        "--include-log-monitor=false",
        f"--object-store-memory={setup.store_bytes}",
        f"--num-cpus={setup.cpus or _cores()}",
        f"--num-gpus={setup.gpus}",
        *([f"--labels={labels}"] if labels else []),
    ]
    if setup.slots:
        options.append("--resources=" + json.dumps({SLOTS: setup.slots}))
    if setup.ip:
        options.append(f"--node-ip-address={setup.ip}")
    if setup.temp:
        options.append(f"--temp-dir={setup.temp}")
    return options


def ray_environment(token: Path | None, setup: NodeSetup | None = None) -> dict[str, str]:
    """The environment of Ray's processes and of their clients; a `token` turns its check on."""
    env = dict(SETTINGS)
    if token is not None:
        env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    if setup is not None:
        env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] = f"{setup.leave_s:g}"
        if setup.own:
            env[OWN] = setup.own
    return env


def find_address() -> str:
    """The address by which other machines reach this one; loopback where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses a way out
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


HEAD, TOKEN, LOG = "ray-head.json", "ray-token", "ray-head.log"
TAG = "WEFT_RAY_HEAD"  # in the environment of all its processes
BEGIN_S, END_S = 120.0, 10.0
PAUSE_S = 0.2


@frozen
class Head:
    """A head that runs: where, its process, and the file with the token that it asks for."""

    address: str
    pid: int
    token: Path


async def need_head(state: Path, setup: NodeSetup) -> Head:
    """The head that this service began before, or a new one; EngineError if none can be begun."""
    head = find_head(state)
    if head is not None:
        return head
    setup = replace(
        setup,
        ip=setup.ip or find_address(),
        port=setup.port or _free_port(),
        leave_s=0.0,  # no service could take its jobs over
    )
    token = make_token(state / TOKEN)
    address = f"{setup.ip}:{setup.port}"
    if _answers(address):
        raise EngineError(
            f"another process listens at {address} already, the address of Ray's head",
            hint=f"is it a Ray? --engine ray:address={address} uses it; "
            "or choose another port with --engine ray:port=NUMBER",
        )
    log = state / LOG
    env = {**os.environ, **ray_environment(token, setup)}
    tag = secrets.token_hex(8)
    pid = spawn_command(head_command(setup), log, {**env, TAG: tag})
    try:
        await _wait_for(address, pid, log)
    except BaseException:  # also if the client has disconnected: it would hold the port
        _end(pid, tag)
        raise
    write_whole(state / HEAD, {"address": address, "pid": pid, "began": start_time(pid)})
    return Head(address, pid, token)


def find_head(state: Path) -> Head | None:
    """The head that was begun from this folder, if it still runs."""
    body: dict[str, Any] | None = read_json(state / HEAD)
    if body is None or not alive(int(body["pid"]), int(body["began"])):
        return None
    return Head(str(body["address"]), int(body["pid"]), state / TOKEN)


async def _wait_for(address: str, pid: int, log: Path) -> None:
    until = time.monotonic() + BEGIN_S
    while not _answers(address):
        ended = reap(pid)
        if ended or time.monotonic() > until:
            how = "ended" if ended else f"did not begin within {BEGIN_S:g} s"
            raise EngineError(
                f"the head of Ray {how}; its last output: {_tail(log)}; its log is {log}",
                hint="is --engine ray:ip=ADDRESS one of this machine, and its port free?",
            )
        await asyncio.sleep(PAUSE_S)


def _end(pid: int, tag: str) -> None:
    """End a head that did not begin, with whatever it started, also if it is gone itself."""
    until = time.monotonic() + END_S
    while (left := [*find_tagged(TAG, tag)]) and time.monotonic() < until:
        kill_all(left)
        reap(pid)
        time.sleep(PAUSE_S / 10)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "it said nothing"
