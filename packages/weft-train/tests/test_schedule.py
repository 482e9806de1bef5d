"""Schedules that the job steps."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR

from weft_train.batch.schedule import SampleSchedule
from weft_train.errors import TrainError


def cosine() -> tuple[torch.optim.Optimizer, CosineAnnealingLR]:
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0)
    schedule = CosineAnnealingLR(optimizer, 100)
    optimizer.step()
    return optimizer, schedule


def test_it_advances_to_where_the_training_stands() -> None:
    plain_optimizer, plain = cosine()
    optimizer, inner = cosine()
    ours = SampleSchedule(inner)
    rates = []
    for _ in range(10):
        plain_optimizer.step()
        plain.step()
        rates.append(plain_optimizer.param_groups[0]["lr"])

    ours.advance(3)
    third = optimizer.param_groups[0]["lr"]
    ours.advance(3)
    ours.advance(10)

    assert third == rates[2]
    assert optimizer.param_groups[0]["lr"] == rates[9]
    assert ours.get_last_lr() == [rates[9]]


def test_it_goes_on_from_what_was_saved() -> None:
    _, inner = cosine()
    first = SampleSchedule(inner)
    first.advance(7)
    _, again = cosine()
    second = SampleSchedule(again)

    second.load_state_dict(first.state_dict())
    second.advance(9)

    assert again.last_epoch == 9


def test_a_script_that_steps_it_is_told() -> None:
    _, inner = cosine()
    ours = SampleSchedule(inner)

    with pytest.raises(TrainError, match="was called by the script"):
        ours.step()
    inner.step()
    with pytest.raises(TrainError, match="stepped elsewhere"):
        ours.advance(2)
