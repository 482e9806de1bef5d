"""Throw-away clusters, each brought up once for all tests that want it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.kubernetes import KubernetesCluster, what_is_missing
from tests.clusters.slurm import SlurmCluster, missing


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesCluster]:
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


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm_cluster.env[name])
    yield slurm_cluster
    slurm_cluster.clear()
