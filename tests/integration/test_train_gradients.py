"""Real gloo ranks: what a rank sees of its own gradients while DDP averages them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from tests.integration import ranks
from weft.train.gang import Gang
from weft.train.gradients import Gradients
from weft.train.timing import CpuClock
from weft.wire.environment import Environment


def look(folder: str, as_view: bool) -> None:
    """Two micro-batches a step; the gradients are (2, 0) at rank 0 and (0, 4) at rank 1."""
    gang = Gang(Environment.read(), "cpu")
    model = torch.nn.Linear(2, 1, bias=False)
    watched = Gradients(model.parameters(), gang.size, CpuClock())
    watched.every = 2
    seen = DistributedDataParallel(model, gradient_as_bucket_view=as_view)
    sample = torch.tensor([[2.0, 0.0], [0.0, 4.0]][gang.rank])
    found = []
    for step in range(3):
        watched.begin(step)
        with seen.no_sync():
            (seen(sample) / 2).backward()
        watched.before_last()
        (seen(sample) / 2).backward()
        watched.after_last(total=4, few=2.0)
        model.weight.grad = None
        norms = watched.take()
        found.append(None if norms is None else [norms.few_sqr, norms.many_sqr])
        assert watched.ready is not None
    (Path(folder) / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
    gang.leave()


@pytest.mark.parametrize("as_view", [True, False])
def test_own_gradients_are_measured_before_and_the_mean_after_averaging(
    tmp_path: Path, as_view: bool
) -> None:
    codes = ranks.finish(ranks.start(look, 2, {}, str(tmp_path), as_view))

    assert codes == [0, 0]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == [pytest.approx([4.0, 5.0]), None, pytest.approx([4.0, 5.0])]
    assert second == [pytest.approx([16.0, 5.0]), None, pytest.approx([16.0, 5.0])]
