"""Files that pods leave: read on the volume where they and the service meet, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.engines.left_files import HOSTILE, KEPT, LEAVES, LEFT_OUT, read_whole
from weft.core.artifacts import ArtifactFiles
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.engines.kubernetes.engine import KubernetesEngine


def files_of(root: Path, mounts: str) -> ArtifactFiles:
    """Those of an engine that needs no server yet; its state is `root/state`."""
    kubeconfig = root / "config"
    body = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig.write_text(json.dumps(body))
    (root / "state" / "jobs").mkdir(parents=True, exist_ok=True)
    config = str(kubeconfig)
    return KubernetesEngine(
        root / "state", image="none", kubeconfig=config, mounts=mounts
    ).artifacts


def left_in(workdir: Path) -> Job:
    workdir.mkdir()
    (workdir.parent / "secret").write_text("hush")
    assert os.system(f"cd {workdir} && {LEAVES}") == 0
    launch = Launch(("x",), workdir=str(workdir), artifacts="out")
    return Job(JobId("one"), launch=launch)


def test_files_on_the_volume_where_pods_and_service_meet_are_read(tmp_path: Path) -> None:
    files, job = files_of(tmp_path, f"share:{tmp_path}"), left_in(tmp_path / "work")

    async def read() -> None:
        listed, left_out = await files.list_files(job, 1)
        assert ({file.path: file.size for file in listed}, left_out) == (KEPT, LEFT_OUT)
        assert await read_whole(files, job, "out/best/model.pt") == b"1234"
        for path in HOSTILE:
            with pytest.raises((UnknownName, InvalidConfig)):
                await files.read(job, 1, path, 0)

    asyncio.run(read())


def test_files_that_pods_see_on_another_volume_are_refused(tmp_path: Path) -> None:
    files = files_of(tmp_path, f"share:{tmp_path}/state+data:{tmp_path}/work")
    job = left_in(tmp_path / "work")

    with pytest.raises(InvalidConfig, match="the service does not see"):
        asyncio.run(files.list_files(job, 1))
    with pytest.raises(InvalidConfig, match="the service does not see"):
        asyncio.run(files.read(job, 1, "out/best/model.pt", 0))


def test_no_link_below_the_volume_leads_to_files_of_the_service(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "out").mkdir(parents=True)
    (own / "out" / "token").write_text("hush")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "linked").symlink_to(own)
    launch = Launch(("x",), workdir=str(tmp_path / "state" / "linked"), artifacts="out")
    job, files = Job(JobId("one"), launch=launch), files_of(tmp_path, f"share:{tmp_path}/state")

    assert asyncio.run(files.list_files(job, 1)) == ([], 1)
    with pytest.raises(UnknownName):
        asyncio.run(files.read(job, 1, "out/token", 0))
