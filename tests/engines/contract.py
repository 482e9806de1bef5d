"""The engine contract as parameters of a test: `make test` has time for a few of its checks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.clusters.kubernetes import KubernetesCluster
from tests.tiny_image import make_tiny_image
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.testing.check_engine import CHECKS
from weft.testing.engine_subject import Image


def every_check(*quick: str) -> list[ParameterSet]:
    """All checks; those that are not `quick` are left to `make test-engines`."""
    return [
        pytest.param(check, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, check in CHECKS.items()
    ]


def engine_of_pods(cluster: KubernetesCluster, state: Path, **more: str) -> KubernetesEngine:
    """An engine whose pods run on this machine, as the cluster's kubelets start them."""
    return KubernetesEngine(
        state,
        image="none",
        kubeconfig=str(cluster.kubeconfig),
        mounts="/",
        python=sys.executable,
        address="pod",
        **more,  # type: ignore[arg-type]
    )


def make_image(folder: Path) -> Image:
    """A tiny image, and a volume with a file to be read inside."""
    for name in ("image", "volume"):
        (folder / name).mkdir()
    name, env = make_tiny_image(folder / "image")
    (folder / "volume" / "file").write_text("read inside\n")
    return Image(name, str(folder / "volume"), "read inside", env)
