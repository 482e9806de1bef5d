"""The elastic loader: every sample once an epoch, whatever the number of ranks and the batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from weft_train.data.sampling import Cell, StepBatch, count_steps, deal_cells
from weft_train.errors import TrainError
from weft_train.ranks.gang import RankGang


class TrainingState(Protocol):
    """The part of a training that the loader reads and updates."""

    @property
    def epoch(self) -> int:
        """The epoch that runs."""
        ...

    @property
    def position(self) -> int:
        """Samples of it that are trained on."""
        ...

    @property
    def batch(self) -> StepBatch: ...

    def before_fetch(self) -> None:
        """A batch is about to be fetched by this process."""
        ...

    def after_fetch(self, cell: Cell, seconds: float) -> None:
        """A batch is there."""
        ...

    def skip_step(self, cell: Cell) -> None:
        """Take part in a step without samples."""
        ...

    def finish_step(self) -> None:
        """Count a step, after the script has used its batches."""
        ...


class Loader:
    """Batches of a map-style data set, on the job's device. Made by `job.loader`."""

    def __init__(
        self,
        state: TrainingState,
        gang: RankGang,
        dataset: Any,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        num_workers: int,
        collate_fn: Callable[[list[Any]], Any] | None,
    ) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise TrainError(
                "the data set has no length, so its samples cannot be counted",
                hint="give job.loader a map-style data set: __len__ and __getitem__",
            )
        if len(dataset) == 0:
            raise TrainError("the data set is empty")
        self.dataset = dataset
        self.first_batch = batch_size
        self._state, self._gang = state, gang
        self._shuffle, self._seed, self._workers = shuffle, seed, num_workers
        self._collate = collate_fn or default_collate
        self._fetch = getattr(dataset, "__getitems__", None)
        self._order: tuple[int, list[int]] = (-1, [])
        self.smallest = 1  # samples that a rank is given, if it is given any

    @property
    def length(self) -> int:
        """Samples of an epoch."""
        return len(self.dataset)

    def __len__(self) -> int:
        """Steps of a whole epoch at the first batch size, whatever the present one."""
        return count_steps(self.length, self.length, self.first_batch)

    def __iter__(self) -> Iterator[Any]:
        """A rank's batches from where the epoch stands; follows changes of batch and ranks.

        What was agreed on after the epoch's last step waits for `Job.epochs`: the script's own
        work at the end of an epoch must be in the checkpoint that ends it.
        """
        self._state.finish_step()  # of a loop that was left early
        while self._state.position < self.length:
            batch, among = self._state.batch, self._gang.epoch
            source = self._load_with_workers(batch) if self._workers else self._load_here(batch)
            for cell, fetched in source:
                if cell.empty:
                    self._state.skip_step(cell)
                else:
                    yield fetched
                if cell.last and self._state.position < self.length:
                    self._state.finish_step()
                    if self._state.batch != batch or self._gang.epoch != among:
                        break

    def permute(self, epoch: int) -> list[int]:
        """The sample ids of an epoch, in the order of training."""
        if self._order[0] != epoch:
            ids = list(range(self.length))
            if self._shuffle:
                generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
                ids = torch.randperm(self.length, generator=generator).tolist()
            self._order = (epoch, ids)
        return self._order[1]

    def _deal(self, batch: StepBatch) -> Iterator[tuple[Cell, Sequence[int]]]:
        order = self.permute(self._state.epoch)
        dealt = deal_cells(
            self._state.position,
            self.length,
            batch,
            self._gang.rank,
            self._gang.size,
            self.smallest,
        )
        for cell in dealt:
            yield cell, order[cell.start : cell.stop]

    def _load_here(self, batch: StepBatch) -> Iterator[tuple[Cell, Any]]:
        for cell, ids in self._deal(batch):
            self._state.before_fetch()
            began = time.perf_counter()
            fetched = None if cell.empty else self._place(self._collate(self._fetch_samples(ids)))
            self._state.after_fetch(cell, time.perf_counter() - began)
            yield cell, fetched

    def _fetch_samples(self, ids: Sequence[int]) -> list[Any]:
        if self._fetch is not None:
            return list(self._fetch(ids))
        return [self.dataset[at] for at in ids]

    def _load_with_workers(self, batch: StepBatch) -> Iterator[tuple[Cell, Any]]:
        """Workers fetch ahead; the cells wait here until their batch comes."""
        ahead: deque[Cell] = deque()

        def wanted() -> Iterator[list[int]]:
            for cell, ids in self._deal(batch):
                ahead.append(cell)
                if not cell.empty:
                    yield list(ids)

        on_gpu = self._gang.device.type == "cuda"
        fetched = iter(
            DataLoader(
                self.dataset,
                batch_sampler=_BatchSampler(wanted),
                num_workers=self._workers,
                collate_fn=self._collate,
                pin_memory=on_gpu,
                # A generator of its own: fetching must not move the script's random numbers.
                generator=torch.Generator().manual_seed(self._seed),
            )
        )
        over = object()
        while True:
            began = time.perf_counter()
            # The sampler runs ahead of the batches, so a batch's cell is known when it comes.
            got = next(fetched, over)
            while ahead and ahead[0].empty:
                empty = ahead.popleft()
                self._state.after_fetch(empty, 0.0)
                yield empty, None
            if got is over:
                return
            cell = ahead.popleft()
            placed = self._place(got)
            self._state.after_fetch(cell, time.perf_counter() - began)
            yield cell, placed

    def _place(self, value: Any) -> Any:
        if self._gang.device.type == "cpu":
            return value
        return to_device(value, self._gang.device)


class _BatchSampler:
    def __init__(self, batches: Callable[[], Iterator[list[int]]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches()


def to_device(value: Any, device: torch.device) -> Any:
    """Tensors inside lists, tuples and dictionaries, moved without waiting."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(item, device) for item in value)
    return value
