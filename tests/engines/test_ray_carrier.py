"""Files that are brought from a node without the service's folder, or read there."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.engines.left_files import HOSTILE, KEPT, LARGE, LEAVES, LEFT_OUT, read_whole
from weft.core.artifacts import FileFacts
from weft.core.errors import EngineError, InvalidConfig, UnknownName
from weft.core.model.job import Job, JobId, NodeId
from weft.core.model.launch import Launch
from weft.engines.machine.artifacts import ArtifactFolder
from weft.engines.ray.artifacts import RayArtifacts
from weft.engines.ray.bridge import Carrier
from weft.engines.ray.runner import Runner


class Growing:
    """A node with a checkpoint that its job writes to faster than it is brought."""

    def __init__(self) -> None:
        self.asked = 0

    def call(self, node: str, name: str, *args: Any) -> Any:
        assert node == "node"
        if name == "listing":
            return [["model/weights.bin", 10, 1_000_000_000, 0o600]]
        _, offset, most = args
        self.asked += 1
        assert self.asked < 100, "it goes on as long as the job writes"
        return b"x" * min(most, 4) if offset < 1000 else b"x" * most


def test_a_file_is_brought_as_long_as_it_was_listed(tmp_path: Path) -> None:
    node = Growing()

    assert Carrier(node).pull("node", str(tmp_path)) == 1  # type: ignore[arg-type]

    brought = tmp_path / "model" / "weights.bin"
    assert (brought.stat().st_size, brought.stat().st_mtime_ns) == (10, 1_000_000_000)
    assert (node.asked, [*brought.parent.iterdir()]) == (3, [brought])


class Nodes:
    """Runners that are asked as the service asks them, by lines of JSON; `gone` are away."""

    def __init__(self, root: Path, *names: str) -> None:
        self.carrier = Carrier(self)  # type: ignore[arg-type]
        self.runners = {
            name: Runner(str(root / "state"), str(root / name), "mark", "carried") for name in names
        }
        self.gone: set[str] = set()

    def call(self, node: str, name: str, *args: Any) -> Any:
        return self.runners[node].call(name, args)

    async def ask_node(self, node: NodeId, call: str, **given: object) -> Any:
        if node in self.gone:
            raise EngineError(f"node {node!r}, where the job ran, is not in the Ray cluster now")
        return json.loads(json.dumps(getattr(self.carrier, call)(node, **given)))


def left_on(nodes: Nodes, root: Path) -> tuple[RayArtifacts, Job]:
    workdir = root / "state" / "work"
    job = Job(JobId("one"), launch=Launch(("x",), workdir=str(workdir), artifacts="out"))
    folder = ArtifactFolder(workdir, "out", os.geteuid())
    every = [NodeId(name) for name in nodes.runners]
    return RayArtifacts(nodes, lambda _: folder, lambda *_: every), job  # type: ignore[arg-type]


def test_what_a_job_left_is_read_on_the_nodes_where_it_ran(tmp_path: Path) -> None:
    (first := tmp_path / "n1" / "work").mkdir(parents=True)
    (second := tmp_path / "n2" / "work" / "out").mkdir(parents=True)
    (first / "secret").write_text("hush")
    assert os.system(f"cd {first} && {LEAVES} head -c {LARGE} /dev/urandom > out/large") == 0
    (second / "large").write_text("of another rank")
    (second / "own").write_text("22")
    nodes = Nodes(tmp_path, "n1", "n2")
    files, job = left_on(nodes, tmp_path)

    async def read() -> None:
        listed, left_out = await files.list_files(job, 1)
        assert all(isinstance(file, FileFacts) for file in listed)
        sizes = {**KEPT, "out/large": LARGE, "out/own": 2}
        assert {file.path: file.size for file in listed} == sizes
        assert left_out == LEFT_OUT
        assert await read_whole(files, job, "out/large") == (first / "out/large").read_bytes()
        assert await read_whole(files, job, "out/own") == b"22"
        for path in HOSTILE:
            with pytest.raises((UnknownName, InvalidConfig)):
                await files.read(job, 1, path, 0)

        nodes.gone = {"n1"}
        assert [file.path for file in (await files.list_files(job, 1))[0]] == [
            "out/large",
            "out/own",
        ]
        with pytest.raises(EngineError, match="'n1', where the job ran, is not in"):
            await files.read(job, 1, "out/best/model.pt", 0)
        nodes.gone = {"n1", "n2"}
        with pytest.raises(EngineError):
            await files.list_files(job, 1)

    asyncio.run(read())


def test_a_job_that_ran_nowhere_has_left_nothing(tmp_path: Path) -> None:
    files, job = left_on(Nodes(tmp_path), tmp_path)

    assert asyncio.run(files.list_files(job, 0)) == ([], 0)
