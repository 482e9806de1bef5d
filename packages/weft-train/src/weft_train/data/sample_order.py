"""A loader for other libraries' loops whose order of samples survives stops and resizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader


class SampleOrder:
    """One rank's part of every batch; saves and restores where it stands.

    An epoch is one permutation of the data set, fixed by seed and epoch, or what `permute` says.
    Batch k is the k-th `batch_size` samples of it, dealt evenly to the ranks, so a job that resumes
    with another number of ranks goes on with the same batches. A rest smaller than a batch is left
    out. Before the first batch of every step, which has `accumulate` of them, `between` is called,
    which may change the ranks and says so.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        accumulate: int = 1,
        most: int | None = None,
        permute: Callable[[int], list[int]] | None = None,
        batches: int = 0,
    ) -> None:
        self.dataset = dataset
        self._batch, self._rank, self._ranks = batch_size, rank, ranks
        self._shuffle, self._seed = shuffle, seed
        self._workers, self._collate = num_workers, collate_fn
        self.accumulate, self._most = accumulate, most
        self._permute = permute or self._shuffled
        self._batches = batches or len(dataset) // batch_size
        self.between: Callable[[], bool] = lambda: False
        self.epoch = 0
        self._done = 0

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        """The batches that are left of this epoch."""
        if self._done >= len(self):
            self.epoch, self._done = self.epoch + 1, 0
        self.between()
        while self._done < len(self):
            fetched = DataLoader(
                self.dataset,
                batch_sampler=self._choose(),
                num_workers=self._workers,
                collate_fn=self._collate,
            )
            for batch in fetched:
                self._done += 1
                yield batch
                whole = self._done % self.accumulate == 0 and self._done < len(self)
                if whole and self.between():
                    break

    def change_ranks(self, rank: int, ranks: int) -> None:
        """Deal to other ranks from the next step on."""
        self._rank, self._ranks = rank, ranks

    def cannot_deal(self, ranks: int) -> str:
        """Say why a batch cannot be dealt to that many ranks; empty if it can."""
        each, rest = divmod(self._batch, ranks)
        if rest or not each:
            return f"{self._batch} samples cannot be dealt evenly to {ranks} processes"
        if self._most is not None and each > self._most:
            return f"each of {ranks} processes would have {each} samples at once, {self._most} fit"
        return ""

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "done": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self._done = state["epoch"], state["done"]

    def _choose(self) -> list[list[int]]:
        """The sample ids of each batch that is left, this rank's alone."""
        ids = self._permute(self.epoch)
        each = self._batch // self._ranks
        starts = range(self._done * self._batch, len(self) * self._batch, self._batch)
        return [ids[at + self._rank * each :][:each] for at in starts]

    def _shuffled(self, epoch: int) -> list[int]:
        ids = list(range(len(self.dataset)))
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            ids = torch.randperm(len(ids), generator=generator).tolist()
        return ids
