"""Nodes of Slurm without GPUs have as many slots as the service says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clusters.slurm import SlurmCluster, missing
from weft.core.events.event import Finished, Started
from weft.core.model.cluster import CPU
from weft.core.model.job import Allocation, NodeId, Slice
from weft.engines.slurm.engine import SlurmEngine
from weft.testing.engine_subject import session, shell_job, shell_subject

pytestmark = pytest.mark.slow
SLOTS = 3


@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_node_without_gpus_has_the_slots_that_are_asked_for(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking := missing():
        pytest.skip(lacking)
    cluster = SlurmCluster(tmp_path / "slurm", bare=("c1",))
    cluster.use_in(monkeypatch)
    job = shell_job("slots", SLOTS, f"echo $WEFT_CPUS > {tmp_path}/rank-$RANK")

    async def life() -> None:
        made = SlurmEngine(
            tmp_path / "state", mode=mode, held="c1" if mode == "pilot" else "", slots=SLOTS
        )
        async with session(shell_subject(lambda: made)) as it:
            (node,) = [node for node in await it.engine.nodes() if node.kind == CPU]
            assert (node.id, node.gpus) == ("c1", SLOTS)
            await it.engine.start(job, Allocation((Slice(NodeId("c1"), tuple(range(SLOTS))),)), 1)
            assert await it.next() == Started(job.id, 1)
            assert await it.next() == Finished(job.id, 1)

    cluster.up()
    try:
        asyncio.run(life())
        cluster.clear()
    finally:
        cluster.down()

    assert len([*tmp_path.glob("rank-*")]) == SLOTS
