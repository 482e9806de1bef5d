"""Throw-away clusters by the name of their engine, and how to break each of them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.clusters.kubelet import can_name
from tests.clusters.kubernetes import KubernetesCluster, NodeSpec, what_is_missing
from tests.clusters.ray import throw_away_ray, why_not
from tests.clusters.slurm import SlurmCluster, missing
from weft.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Testbed:
    """A cluster that is up: `engine` builds its engine.

    `kill_node` takes a machine away with all that runs there; None where it cannot be done.
    """

    __test__ = False

    engine: str
    kill_node: Callable[[str], None] | None = None
    restore_node: Callable[[str], None] | None = None
    stop_controller: Callable[[], None] | None = None
    start_controller: Callable[[], None] | None = None


@contextmanager
def local() -> Iterator[Testbed]:
    """This machine with four slots."""
    yield Testbed("local:cpu=true,slots=4,warm=false")


@contextmanager
def processes() -> Iterator[Testbed]:
    """Two nodes that are processes of this machine."""
    yield Testbed("processes:nodes=2,slots=4")


@contextmanager
def kubernetes() -> Iterator[Testbed]:
    """Two nodes of four GPUs, one of two; its controller is the API server with node lifecycle."""
    if missing := what_is_missing():
        raise InvalidConfig("there can be no Kubernetes here", hint=missing)
    folder = Path(tempfile.mkdtemp(prefix="weft-k8s-"))
    nodes = (NodeSpec("a1", gpus=4), NodeSpec("a2", gpus=4), NodeSpec("t1", "Tesla-T4"))
    cluster = KubernetesCluster(folder, nodes)

    def stop() -> None:
        cluster.stop_controller()
        cluster.stop_server()

    def start() -> None:
        cluster.start_server()
        cluster.start_controller()

    address = "service" if can_name() else "pod"
    options = f"kubeconfig={cluster.kubeconfig},image=none,mounts=/,address={address}"
    try:
        cluster.up()
        yield Testbed(
            f"kubernetes:{options},python={sys.executable}",
            cluster.kill_node,
            cluster.restore_node,
            stop,
            start,
        )
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def slurm(mode: str) -> Iterator[Testbed]:
    """Four nodes of four GPUs that are down 20 s after they were last heard of."""
    if lacking := missing():
        raise InvalidConfig("there can be no Slurm here", hint=lacking)
    folder = Path(tempfile.mkdtemp(prefix="weft-slurm-"))
    cluster = SlurmCluster(folder)
    before = {name: os.environ.get(name, "") for name in ("PATH", "SLURM_CONF")}
    os.environ.update({name: cluster.env[name] for name in before})
    try:
        cluster.up()
        yield Testbed(
            f"slurm:mode={mode}",
            cluster.kill_node,
            cluster.start_node,
            cluster.kill_controller,
            cluster.start_controller,
        )
        cluster.clear()
    finally:
        cluster.down()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ray() -> Iterator[Testbed]:
    """Two nodes of four GPUs and a head without jobs; its controller stands still when stopped."""
    if why := why_not():
        raise InvalidConfig("there can be no Ray here", hint=why)
    with throw_away_ray("a1:a100:4", "a2:a100:4") as cluster:
        yield Testbed(
            cluster.engine,
            cluster.kill,
            cluster.restore,
            cluster.stop_controller,
            cluster.start_controller,
        )


TESTBEDS: Mapping[str, Callable[[], AbstractContextManager[Testbed]]] = {
    "local": local,
    "processes": processes,
    "kubernetes": kubernetes,
    "slurm": partial(slurm, "native"),
    "slurm-pilot": partial(slurm, "pilot"),
    "ray": ray,
}
