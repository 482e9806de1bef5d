"""A job that was given a GPU trains on it or says why not; it never slips to the CPU."""

from __future__ import annotations

import pytest
import torch

from weft_train.base.environment import Environment
from weft_train.errors import TrainError
from weft_train.ranks.gang import RankGang


@pytest.fixture(autouse=True)
def build_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that could use a GPU, on a machine where CUDA finds none."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")


def test_a_gpu_that_cuda_does_not_find_is_an_error() -> None:
    with pytest.raises(TrainError, match="given GPU 2 of kind h200, and CUDA finds none"):
        RankGang(Environment(kind="h200"))


@pytest.mark.parametrize("kind", ["", "cpu"])
def test_who_was_given_no_gpu_trains_on_the_cpu(kind: str) -> None:
    assert RankGang(Environment(kind=kind)).device == torch.device("cpu")


def test_whoever_asks_for_a_gpu_gets_the_one_of_this_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)

    assert RankGang(Environment(kind="cpu", local_rank=3), "cuda").device == torch.device("cuda", 1)
    assert chosen == [1]


def test_nor_is_one_expected_by_a_torch_that_cannot_use_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)

    assert RankGang(Environment(kind="h200")).device == torch.device("cpu")
