"""Throw-away clusters, each brought up once for all tests that want it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.kubernetes import KubernetesCluster, what_is_missing


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
