"""How a node of Ray is started, as the head or as one more: command lines and environments.

The command is `ray start --block`: one process that has all of a node's, ends them with itself,
and on SIGTERM first tells the cluster that the node leaves and waits for its jobs to move.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.engines.machine.devices import find_gpus, kind_of
from weft.engines.ray.labels import KIND, NODE, SLOTS, check_label
from weft.engines.ray.runner import OWN
from weft.frozen import frozen

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
    """What this machine has: as told, and the rest as it is found."""
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
