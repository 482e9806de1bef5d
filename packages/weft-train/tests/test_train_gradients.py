"""Real gloo ranks: what a rank sees of its own gradients, and how they are averaged by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import real_ranks as ranks
import torch
from torch.nn.parallel import DistributedDataParallel

from weft_train.base.environment import Environment
from weft_train.batch.gradients import Gradients
from weft_train.ranks.gang import RankGang
from weft_train.turns.stopwatch import CpuDeviceClock


def look(folder: str, as_view: bool) -> None:
    """Two micro-batches a step; the gradients are (2, 0) at rank 0 and (0, 4) at rank 1."""
    gang = RankGang(Environment.read(), "cpu")
    model = torch.nn.Linear(2, 1, bias=False)
    watched = Gradients(model.parameters(), gang.size, CpuDeviceClock())
    watched.every = 2
    seen = DistributedDataParallel(model, gradient_as_bucket_view=as_view)
    sample = torch.tensor([[2.0, 0.0], [0.0, 4.0]][gang.rank])
    norms_seen = []
    for step in range(3):
        watched.begin_step(step)
        with seen.no_sync():
            (seen(sample) / 2).backward()
            if watched.measuring:
                (seen(sample) / 2).backward()
                watched.before_average()
                gang.average(model.parameters())
        if not watched.measuring:
            (seen(sample) / 2).backward()
        watched.after_last(total=4, few=2.0)
        assert model.weight.grad is not None
        assert model.weight.grad.tolist() == [[1.0, 2.0]]
        model.weight.grad = None
        norms = watched.take_norms()
        norms_seen.append(None if norms is None else [norms.few_sqr, norms.many_sqr])
        assert (watched.ready is not None) == watched.measuring
    (Path(folder) / f"{os.environ['RANK']}.json").write_text(json.dumps(norms_seen))
    gang.release_groups()


@pytest.mark.parametrize("as_view", [True, False])
def test_own_gradients_are_measured_before_and_the_mean_after_averaging(
    tmp_path: Path, as_view: bool
) -> None:
    codes = ranks.finish(ranks.start(look, 2, {}, str(tmp_path), as_view))

    assert codes == [0, 0]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == [pytest.approx([4.0, 5.0]), None, pytest.approx([4.0, 5.0])]
    assert second == [pytest.approx([16.0, 5.0]), None, pytest.approx([16.0, 5.0])]


def average(folder: str) -> None:
    """A gradient of every rank, of one rank, of none, and of another type."""
    gang = RankGang(Environment.read(), "cpu")
    every, sparse, none = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    wide = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    every.grad = torch.full((2,), 2.0 + 2.0 * gang.rank)
    wide.grad = torch.full((3,), 4.0 * gang.rank, dtype=torch.float64)
    if gang.rank == 0:
        sparse.grad = torch.tensor([8.0, 0.0])
    gang.average([every, wide, sparse, none])
    gradients = [None if p.grad is None else p.grad.tolist() for p in (every, wide, sparse, none)]
    (Path(folder) / f"{gang.rank}.json").write_text(json.dumps(gradients))
    gang.release_groups()


def test_gradients_are_averaged_wherever_a_rank_has_one(tmp_path: Path) -> None:
    codes = ranks.finish(ranks.start(average, 2, {}, str(tmp_path)))

    assert codes == [0, 0]
    for rank in range(2):
        body = json.loads((tmp_path / f"{rank}.json").read_text())
        assert body == [[3.0, 3.0], [2.0, 2.0, 2.0], [4.0, 0.0], None]
