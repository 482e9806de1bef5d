"""Throw-away clusters, each brought up once for all tests that want it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import weft
import weft_client
from tests.clusters.kubernetes import KubernetesCluster, what_is_missing
from tests.clusters.slurm import SlurmCluster, missing
from tests.integration.users import open_folder


@pytest.fixture
def kubernetes(kubernetes_cluster: KubernetesCluster) -> Iterator[KubernetesCluster]:
    yield kubernetes_cluster
    kubernetes_cluster.clear()


@pytest.fixture(scope="session")
def kubernetes_cluster() -> Iterator[KubernetesCluster]:
    if missing := what_is_missing():
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(prefix="weft-k8s-"))  # short: sockets live below it
    cluster = KubernetesCluster(folder)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if lacking := missing():
        pytest.skip(lacking)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    cluster.up()
    yield cluster
    cluster.down()


@pytest.fixture(scope="module")
def open_cluster() -> Iterator[SlurmCluster]:
    """A Slurm cluster whose files all users can read, as at a site."""
    if lacking := missing():
        pytest.skip(lacking)
    with open_folder() as folder:
        cluster = SlurmCluster(folder / "slurm")
        cluster.up()
        yield cluster
        cluster.down()


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    slurm_cluster.use_in(monkeypatch)
    yield slurm_cluster
    slurm_cluster.clear()


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """An interpreter with Weft that all users can run; with PyTorch, where that is installed."""
    torch = find_spec("torch")
    packages = [Path(torch.origin).parents[1]] if torch and torch.origin else []
    ours = [Path(str(package.__file__)).parents[1] for package in (weft, weft_client)]
    path = ":".join(map(str, [*ours, *packages]))
    with open_folder() as folder:
        for real in filter(None, (sys.executable, shutil.which("python3", path="/usr/bin:/bin"))):
            wrapper = folder / "python"
            wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {real} "$@"\n')
            wrapper.chmod(0o755)
            command = [str(wrapper), "-P", "-c", "import weft.node.agent"]
            if not subprocess.run(command, user="nobody", cwd="/", capture_output=True).returncode:
                yield str(wrapper)
                return
    pytest.skip("no interpreter that other users can run")
