"""Ranks that come and go in a training under a plan: what they divide is divided again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import real_ranks as ranks
from test_callback_ranks import LIMIT_S, Job, flat, note, read

from weft_train.base.messages import CanResize, Dropped, GroupPlan, Notice

BATCH, WIDTH = 12, 7  # no number of ranks divides the width: some have more, some nothing


def with_plan(folder: str, last: int, plan: str = "zero3") -> None:
    import torch

    import weft_train as wt

    class Net(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))
            self.head = torch.nn.Linear(WIDTH, 1)
            self.sign: Any
            self.register_buffer("sign", torch.linspace(-1.0, 1.0, WIDTH), persistent=False)

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = x + torch.tanh(block(x)) * self.sign
            return self.head(x)

    os.environ.setdefault("WEFT_PLAN", plan)
    training = wt.plan(
        Net,
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        torch.nn.functional.mse_loss,
        batch=BATCH,
        layers=("blocks.*", "head"),
        clip=1.0,
        checkpoint_every_s=600.0,
        report_every_s=0.0,
    )
    for step in training.steps(last or 1_000_000):
        x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
        rows = training.rows
        loss = training.step(x[rows], x[rows].sum(1, keepdim=True))
        place = training.rank, training.layout.data
        ids = [*range(BATCH)][rows]
        note(folder, step + 1, place, 0.01, [(ids, loss)])


@pytest.mark.parametrize(
    "plan",
    ["zero3", *(pytest.param(plan, marks=pytest.mark.slow) for plan in ("zero1-ga2-gc", "dp"))],
)
def test_ranks_come_and_go_and_its_loss_is_that_of_an_undisturbed_run(
    plan: str, tmp_path: Path
) -> None:
    calm = tmp_path / "calm"
    calm.mkdir()
    with Job(with_plan, tmp_path, plan) as job:
        job.first(CanResize)
        job.form(1, (0, 1), new=(1,))
        job.wait_for(1, 2)
        job.form(2, (0, 1, 2), new=(2,))
        job.wait_for(2, 3)
        job.form(3, (1, 2))  # as many as once before, in other places
        job.wait_for(3, 2)
        job.form(4, (2,))
        job.wait_for(4, 1)
        codes = job.stop()
        seen = read(job.folder)
    last = ranks.start(with_plan, 1, {}, str(calm), max(seen), plan)
    codes += ranks.finish(last, LIMIT_S)
    undisturbed = read(calm)

    assert codes == [0, 0, 0, 0]
    sizes = [seen[step][0][1] for step in sorted(seen) if step]
    assert [size for at, size in enumerate(sizes) if sizes[at - 1 : at] != [size]] == [
        1,
        2,
        3,
        2,
        1,
    ]
    for step in range(1, max(seen) + 1):
        rows, (alone,) = seen[step], undisturbed[step]
        ids, loss = flat(rows)
        assert ids == [*range(BATCH)]
        assert len({row[-1][0][1] for row in rows}) == 1
        assert loss == pytest.approx(flat([alone])[1], rel=1e-4, abs=1e-6), f"loss of step {step}"


def test_a_plan_that_other_ranks_cannot_have_is_refused_in_words(tmp_path: Path) -> None:
    members = tuple(range(5))
    with Job(with_plan, tmp_path, "zero3") as job:
        job.first(CanResize)
        job.agent.send_to_rank(GroupPlan(1, members, members[1:], (0,), str(tmp_path / "store")))
        dropped = job.first(Dropped)
        assert job.stop() == [0]

    assert "a batch of 12 cannot be shared by plan dp5" in dropped.reason


def test_a_plan_whose_parts_cannot_move_says_so(tmp_path: Path) -> None:
    with Job(with_plan, tmp_path, "offload") as job:
        notice = job.first(Notice)
        assert job.stop() == [0]

    why = "plan dp1-tp1-pp1-offload keeps a part of the state outside the GPU"
    assert notice.text == f"the job is restarted for another number of GPUs: {why}"
    assert not job.agent.of(CanResize)
