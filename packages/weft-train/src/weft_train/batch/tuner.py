"""Choice of the batch to train on, and of the learning rate that goes with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from weft_train.base.step_fit import FitRow, fit_rows
from weft_train.base.step_times import TINY, StepTime
from weft_train.batch.noise import GradientNoise
from weft_train.data.sampling import StepBatch, split
from weft_train.errors import TrainError

Rule = Callable[[GradientNoise, float], float]

BETTER = 1.05  # a batch must promise this much more goodput to be changed to
CANDIDATES = 50  # batches that are compared, from the script's own to the largest

# By nodes, ranks and samples per GPU; the first of each.
Measured = dict[tuple[int, int, int], FitRow]


def _adascale(noise: GradientNoise, batch: float) -> float:
    """Johnson et al., "AdaScale SGD", ICML 2020: the gain ratio."""
    return noise.gain(batch)


def _sqrt(noise: GradientNoise, batch: float) -> float:
    """Krizhevsky 2014; what adaptive optimisers such as Adam want."""
    return math.sqrt(batch / noise.init_batch)


def _linear(noise: GradientNoise, batch: float) -> float:
    """Goyal et al. 2017; good while the batch is far below the noise scale."""
    return batch / noise.init_batch


def _none(_noise: GradientNoise, _batch: float) -> float:
    return 1.0


RULES: dict[str, Rule] = {"adascale": _adascale, "sqrt": _sqrt, "linear": _linear, "none": _none}


def find_rule(name: str) -> Rule:
    """Return the rule, by name, that gives the factor of the learning rate for a batch."""
    if name not in RULES:
        raise TrainError(
            f"no learning-rate scaling named {name!r}", hint=f"there are {', '.join(RULES)}"
        )
    return RULES[name]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The batches that the script allows: its own, the largest, and the largest on one GPU.

    `largest` equal to `init` means that the batch is fixed.
    """

    init: int
    largest: int
    max_per_gpu: int

    @classmethod
    def of(cls, batch_size: int, max_batch_size: int | None, max_per_gpu: int | None) -> Bounds:
        """Checked; a micro-batch above the script's own batch is not assumed to fit."""
        largest = batch_size if max_batch_size is None else max_batch_size
        if batch_size < 1:
            raise TrainError(f"batch_size is {batch_size}, expected at least 1")
        if largest < batch_size:
            raise TrainError(
                f"max_batch_size is {largest}, below batch_size {batch_size}",
                hint="leave it out to keep the batch size fixed",
            )
        if max_per_gpu is not None and max_per_gpu < 1:
            raise TrainError(f"max_per_gpu is {max_per_gpu}, expected at least 1")
        return cls(batch_size, largest, max_per_gpu or batch_size)

    @property
    def adaptive(self) -> bool:
        """True if the batch may change."""
        return self.largest > self.init


@dataclass(slots=True)
class BatchTuner:
    """The job's own measurements on each device kind, and the batch they speak for."""

    bounds: Bounds
    kind: str
    nodes: int
    ranks: int
    measured: dict[str, Measured] = field(default_factory=dict)
    _fitted: tuple[str, int, StepTime] | None = None  # to how many rows of which kind

    def choose_first(self) -> StepBatch:
        """The script's own batch, on this many ranks."""
        return split(self.bounds.init, self.ranks, self.bounds.max_per_gpu)

    def fit_total(self, total: int) -> StepBatch:
        """A batch of about `total` samples, inside the bounds."""
        inside = min(max(total, self.bounds.init), self.bounds.largest)
        return split(inside, self.ranks, self.bounds.max_per_gpu)

    def fit_choice(self, per_gpu: int, accumulate: int) -> StepBatch:
        """The batch the scheduler chose, cut to what the script allows."""
        per_gpu = min(per_gpu, self.bounds.max_per_gpu)
        total = per_gpu * accumulate * self.ranks
        inside = min(max(total, self.bounds.init), self.bounds.largest)
        return split(inside, self.ranks, per_gpu)

    def observe(self, per_gpu: int, grad_s: float, step_s: float) -> None:
        """Seconds of one micro-batch's gradient, and of the last one with synchronisation."""
        row = FitRow(self.nodes, self.ranks, per_gpu, max(grad_s, 1e-6), max(step_s, grad_s, 1e-6))
        self.measured.setdefault(self.kind, {}).setdefault(row[:3], row)

    def find_best(self, noise: GradientNoise, now: StepBatch) -> StepBatch:
        """The batch with the highest fitted goodput, if it is clearly better than `now`."""
        rows = self.measured.get(self.kind)
        if not self.bounds.adaptive or not rows or not noise.known:
            return now
        times = self._fit(rows)
        # Memory beyond twice the largest micro-batch that ever ran is unknown.
        most = min(self.bounds.max_per_gpu, 2 * max(local for _, _, local in rows))
        choices = list(self.candidates(most))
        if not choices:
            return now
        best = max(choices, key=lambda batch: self._goodput(times, noise, batch))
        if self._goodput(times, noise, best) <= BETTER * self._goodput(times, noise, now):
            return now
        return self.fit_choice(best.per_gpu, best.accumulate)

    def candidates(self, most: int) -> Iterator[StepBatch]:
        """Batches from the script's own to the largest, spaced by equal factors.

        Those of the scheduler's model (`weft.perf.goodput.model`): each is dealt to the ranks in
        the fewest micro-batches of at most `most` samples. One rank takes at least two where it has
        more than the script's own batch: without them nothing would tell how noisy gradients are.
        """
        least, largest = max(self.bounds.init, self.ranks), self.bounds.largest
        if least > largest:
            return
        for step in range(CANDIDATES):
            each = least * (largest / least) ** (step / (CANDIDATES - 1)) / self.ranks
            accumulate = math.ceil(each / most - TINY)
            if self.ranks == 1 and each > self.bounds.init + TINY:
                accumulate = max(accumulate, 2)
            per_gpu = math.ceil(each / accumulate - TINY)
            yield StepBatch(per_gpu * accumulate * self.ranks, per_gpu, accumulate)

    def _goodput(self, times: StepTime, noise: GradientNoise, batch: StepBatch) -> float:
        """Useful samples per second: what one is worth, against one of the script's own batch."""
        rate = times.throughput(self.nodes, self.ranks, batch.per_gpu, batch.accumulate)
        return float(rate * noise.gain(batch.total) * self.bounds.init / batch.total)

    def _fit(self, rows: Measured) -> StepTime:
        if self._fitted is None or self._fitted[:2] != (self.kind, len(rows)):
            times = StepTime(*fit_rows(tuple(sorted(rows.values()))))
            self._fitted = (self.kind, len(rows), times)
        return self._fitted[2]

    def state_dict(self) -> dict[str, list[list[float]]]:
        return {
            kind: [[float(v) for v in row] for row in rows.values()]
            for kind, rows in self.measured.items()
        }

    def load_state_dict(self, state: dict[str, list[list[float]]]) -> None:
        for kind, rows in state.items():
            own = self.measured.setdefault(kind, {})
            for nodes, ranks, local, grad_s, step_s in rows:
                row = FitRow(int(nodes), int(ranks), int(local), grad_s, step_s)
                own.setdefault(row[:3], row)
