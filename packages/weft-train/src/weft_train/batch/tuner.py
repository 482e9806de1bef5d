"""Which batch to train on, and how fast to learn with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.frozen import frozen
from weft.perf.goodput.fit import Row
from weft.perf.goodput.measurements import Measurements
from weft.perf.goodput.model import Limits, Noise, best_batch
from weft.train.batch.noise import GradientNoise
from weft.train.data.sampling import Batch, split
from weft.train.errors import TrainError

Rule = Callable[[GradientNoise, float], float]

BETTER = 1.05  # a batch must promise this much more goodput to be changed to


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
    """What the learning rate is multiplied by for a batch, by name."""
    if name not in RULES:
        raise TrainError(
            f"no learning-rate scaling named {name!r}", hint=f"there are {', '.join(RULES)}"
        )
    return RULES[name]


@frozen
class Bounds:
    """What the script allows: its own batch, the largest, and the largest on one GPU.

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
        """Whether the batch may change."""
        return self.largest > self.init


@dataclass(slots=True)
class Tuner:
    """The job's own measurements on each device kind, and the batch they speak for."""

    bounds: Bounds
    kind: str
    nodes: int
    ranks: int
    measured: dict[str, Measurements] = field(default_factory=dict)

    def choose_first(self) -> Batch:
        """The script's own batch, on this many ranks."""
        return split(self.bounds.init, self.ranks, self.bounds.max_per_gpu)

    def fit_total(self, total: int) -> Batch:
        """A batch of about `total` samples, inside the bounds."""
        inside = min(max(total, self.bounds.init), self.bounds.largest)
        return split(inside, self.ranks, self.bounds.max_per_gpu)

    def fit_choice(self, per_gpu: int, accumulate: int) -> Batch:
        """The batch the scheduler chose, cut to what the script allows."""
        per_gpu = min(per_gpu, self.bounds.max_per_gpu)
        total = per_gpu * accumulate * self.ranks
        inside = min(max(total, self.bounds.init), self.bounds.largest)
        return split(inside, self.ranks, per_gpu)

    def observe(self, per_gpu: int, grad_s: float, step_s: float) -> None:
        """Seconds of one micro-batch's gradient, and of the last one with synchronisation."""
        row = Row(self.nodes, self.ranks, per_gpu, max(grad_s, 1e-6), max(step_s, grad_s, 1e-6))
        self.measured.setdefault(self.kind, Measurements()).observe(row)

    def find_best(self, noise: GradientNoise, now: Batch) -> Batch:
        """The batch with the highest fitted goodput, if it is clearly better than `now`."""
        own = self.measured.get(self.kind)
        if not self.bounds.adaptive or own is None or not noise.known:
            return now
        times = own.times()
        stats = Noise(noise.sqr, noise.var, float(self.bounds.init))
        limits = Limits(
            float(self.bounds.largest),
            1.0,
            float(min(self.bounds.max_per_gpu, self._largest_safe())),
        )
        choice = best_batch(times, stats, float(self.nodes), float(self.ranks), limits)
        if choice.goodput <= 0.0:
            return now
        rate = times.throughput(
            float(self.nodes), float(self.ranks), float(now.per_gpu), now.accumulate
        )
        if choice.goodput <= BETTER * rate * float(stats.efficiency(float(now.total))):
            return now
        return self.fit_choice(int(choice.local), int(choice.accumulate))

    def _largest_safe(self) -> int:
        """Twice the largest micro-batch that ever ran: memory beyond it is unknown."""
        rows = self.measured[self.kind].rows
        return 2 * max(local for _, _, local in rows)

    def state_dict(self) -> dict[str, list[list[float]]]:
        """What a checkpoint keeps."""
        return {
            kind: [[float(v) for v in row] for row in own.rows.values()]
            for kind, own in self.measured.items()
        }

    def load_state_dict(self, state: dict[str, list[list[float]]]) -> None:
        """Go on from a checkpoint."""
        for kind, rows in state.items():
            own = self.measured.setdefault(kind, Measurements())
            for nodes, ranks, local, grad_s, step_s in rows:
                own.observe(Row(int(nodes), int(ranks), int(local), grad_s, step_s))
