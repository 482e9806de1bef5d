"""A loader for other libraries' loops whose order of samples survives stops and resizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader


class SampleOrder:
    """One rank's part of every batch; saves and restores where it stands.

    An epoch is one permutation of the data set, fixed by seed and epoch. Batch k is the k-th
    `batch_size` samples of it, dealt evenly to the ranks, so a job that resumes with another number
    of ranks goes on with the same batches. A rest smaller than a batch is left out.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        rank: int,
        ranks: int,
        shuffle: bool,
        seed: int,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self.dataset = dataset
        self._batch, self._rank, self._ranks = batch_size, rank, ranks
        self._shuffle, self._seed = shuffle, seed
        self._workers, self._collate = num_workers, collate_fn
        self._epoch = 0
        self._done = 0

    def __len__(self) -> int:
        return len(self.dataset) // self._batch

    def __iter__(self) -> Iterator[Any]:
        """The batches that are left of this epoch."""
        if self._done >= len(self):
            self._epoch, self._done = self._epoch + 1, 0
        fetched = DataLoader(
            self.dataset,
            batch_sampler=self._choose(),
            num_workers=self._workers,
            collate_fn=self._collate,
        )
        for batch in fetched:
            self._done += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "done": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._epoch, self._done = state["epoch"], state["done"]

    def _choose(self) -> list[list[int]]:
        """The sample ids of each batch that is left, this rank's alone."""
        ids = list(range(len(self.dataset)))
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
            ids = torch.randperm(len(ids), generator=generator).tolist()
        each = self._batch // self._ranks
        starts = range(self._done * self._batch, len(self) * self._batch, self._batch)
        return [ids[at + self._rank * each :][:each] for at in starts]
