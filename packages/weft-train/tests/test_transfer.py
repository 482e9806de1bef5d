"""States that go from one rank to another, read out of its memory or sent."""

from __future__ import annotations

import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from weft_train.ranks.peer_memory import check_origin, open_memory
from weft_train.ranks.transfer import LARGE, find_tensors, receive_state, send_state

CPU = torch.device("cpu")


def make_state(seed: int) -> dict[str, Any]:
    """All that a state may have: large, small, empty, odd, transposed tensors, and other values."""
    random = torch.Generator().manual_seed(seed)
    large = torch.randn(LARGE // 4 + 3, generator=random)
    return {
        "model": OrderedDict(weight=large, bias=torch.randn(7, generator=random)),
        "optimizer": [{"step": torch.tensor(float(seed)), "seen": torch.tensor([seed == 1])}],
        "turned": torch.randn(600, 300, generator=random).t(),
        "half": torch.randn(5, generator=random).to(torch.bfloat16),
        "nothing": torch.empty(0),
        "counts": (seed, "steps", [seed]),
    }


def hand_over(sent: dict[str, Any], own: dict[str, Any], *, direct: bool) -> dict[str, Any]:
    """What two ranks of a group make of it."""
    store, ranks = HashStore(), ThreadPoolExecutor(2)

    def meet(rank: int) -> Any:
        return torch.distributed.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))

    with ranks:
        first, second = ranks.map(meet, range(2))
        sending = ranks.submit(send_state, first, [1], sent, direct=direct)
        receiving = ranks.submit(receive_state, second, 0, own)
        assert sending.result() == sum(tensor.nbytes for tensor in find_tensors(sent))
        return receiving.result()  # type: ignore[no-any-return]


@pytest.mark.parametrize("direct", [True, False], ids=["read", "sent"])
def test_a_state_arrives_whole_and_in_its_place(
    direct: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    sent, own = make_state(1), make_state(2)
    places = [tensor.data_ptr() for tensor in find_tensors(own)]

    got = hand_over(sent, own, direct=direct)

    pairs = zip(find_tensors(got), find_tensors(make_state(1)), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert [tensor.data_ptr() for tensor in find_tensors(got)] == places
    assert type(got["model"]) is OrderedDict
    assert got["counts"] == sent["counts"]
    assert "the state is sent" not in caplog.text


def test_memory_of_another_process_than_the_one_that_is_meant_is_refused() -> None:
    with open_memory(CPU) as origin:
        check_origin(origin)

        with pytest.raises(OSError, match="is another one here"):
            check_origin(replace(origin, token=os.urandom(16)))
        with pytest.raises(OSError, match="cannot be read"):
            check_origin(replace(origin, at=8))
