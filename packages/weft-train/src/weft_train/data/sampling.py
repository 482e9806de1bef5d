"""The next samples of each rank: pure arithmetic, the same on every rank.

An epoch is one permutation of the data set, fixed by seed and epoch alone. A step takes the next
`batch` samples of it and deals them evenly to accumulate x ranks cells. Position is all
there is to remember: a run that resumes at it, with any number of ranks, sees the rest once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Division of a step: samples of one micro-batch on one rank, and micro-batches of a step.

    `total` is the samples of a whole step; at most `per_gpu` x ranks x `accumulate`.
    """

    total: int
    per_gpu: int
    accumulate: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank's part of one micro-batch: positions `start` to `stop` of the epoch's order.

    `weight` makes the gradients of unequal cells add up to the mean over the step's samples.
    `ragged` steps have ranks without a sample, so gradients are summed without DDP.
    """

    start: int
    stop: int
    weight: float
    first: bool
    last: bool
    ragged: bool
    total: int
    after: int  # position of the epoch when the step is done

    @property
    def empty(self) -> bool:
        """True if this rank only takes part in the sum."""
        return self.start == self.stop


def split(total: int, ranks: int, max_per_gpu: int) -> StepBatch:
    """The fewest micro-batches in which `total` samples fit into `max_per_gpu` on each rank."""
    micros = max(1, -(-total // (ranks * max_per_gpu)))
    return StepBatch(total, -(-total // (ranks * micros)), micros)


def deal_cells(
    position: int, length: int, batch: StepBatch, rank: int, ranks: int, smallest: int = 1
) -> Iterator[Cell]:
    """A rank's cells from `position` to the end of an epoch of `length` samples.

    A cell that is not empty has at least `smallest` samples, if the whole step has.
    """
    while position < length:
        total = choose_step_size(length - position, batch.total)
        dealt = split(total, ranks, batch.per_gpu)
        micros = dealt.accumulate
        filled = min(micros * ranks, max(total // smallest, 1))
        yield from _deal_step(position, total, micros, filled, rank, ranks)
        position += total


def choose_step_size(left: int, batch: int) -> int:
    """Samples of the next step: a rest of less than half a batch joins the step before it."""
    return left if left < batch + (batch + 1) // 2 else batch


def count_steps(position: int, length: int, batch: int) -> int:
    """Steps of `batch` samples that lead an epoch of `length` samples to `position`."""
    whole = max(1, length // batch + (length % batch >= (batch + 1) // 2))
    return whole if position >= length else min(position // batch, whole - 1)


def _deal_step(
    position: int, total: int, micros: int, filled: int, rank: int, ranks: int
) -> Iterator[Cell]:
    each, extra = divmod(total, filled)
    for micro in range(micros):
        at = micro * ranks + rank
        start = position + min(at, filled) * each + min(at, extra)
        size = each + (at < extra) if at < filled else 0
        yield Cell(
            start=start,
            stop=start + size,
            weight=size * ranks / total,
            first=micro == 0,
            last=micro == micros - 1,
            ragged=filled < micros * ranks,
            total=total,
            after=position + total,
        )
