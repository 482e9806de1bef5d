"""Samples for loops that other libraries own."""

from __future__ import annotations

import pytest

from weft_train.callback_base import split_evenly
from weft_train.data.sample_order import SampleOrder
from weft_train.errors import TrainError


def order(rank: int = 0, ranks: int = 1) -> SampleOrder:
    return SampleOrder(list(range(50)), 12, rank=rank, ranks=ranks, shuffle=True, seed=3)


def test_who_resumes_with_more_ranks_goes_on_with_the_same_batches() -> None:
    alone, broken = order(), order()
    whole = [sorted(batch.tolist()) for batch in alone]
    begun = iter(broken)
    first = [sorted(next(begun).tolist()) for _ in range(2)]
    state = broken.state_dict()

    pair = [order(rank, 2) for rank in range(2)]
    for sampler in pair:
        sampler.load_state_dict(state)
    rest = [sorted(a.tolist() + b.tolist()) for a, b in zip(*pair, strict=True)]

    assert first + rest == whole
    assert len(whole) == len(alone) == 4


def test_every_epoch_has_an_order_of_its_own_and_a_saved_end_begins_the_next() -> None:
    first_order, again = order(), order()
    first, second = ([batch.tolist() for batch in first_order] for _ in range(2))
    for _ in again:
        pass
    ended = order()
    ended.load_state_dict(again.state_dict())

    assert first != second
    assert [batch.tolist() for batch in ended] == second


def test_a_batch_is_split_evenly_or_refused() -> None:
    assert split_evenly(64, 2, None) == (32, 1)
    assert split_evenly(64, 2, 10) == (8, 4)
    with pytest.raises(TrainError, match="cannot be dealt evenly to 3"):
        split_evenly(64, 3, None)
