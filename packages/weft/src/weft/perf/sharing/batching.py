"""Effect of a batch size on a job: step time, memory, use of the GPU, progress of a sample.

A step takes a fixed time, in which the GPU is idle, and a time in proportion to its samples, in
which it is busy. So a large batch amortises the fixed time and fills the GPU, a small one leaves
room to neighbours; and by the gradient noise scale samples of a large batch are worth less.

The eight models are those of IADeep's evaluation (Cai et al., SC 2023); their parameters are
ours: plausible for a GPU of 24 GB, measured nowhere. Most initial batches are near what is best
alone; VGG16, BERT and YOLOv5 were given larger ones, as people do who fill a GPU.

What running jobs show of their batch sizes: memory, noise, and progress beside that alone.

A real job's step times are not known beforehand. What it reports at the batch it was
submitted with is what others are measured against: the quickest step seen there is taken to be
the one alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from weft.core.codec.plain_values import decode, encode
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import TunableBatch
from weft.core.knowledge.profile import Profile
from weft.core.model.job import Batch, Job, JobId
from weft.formulas.sharing.degradation import degradation
from weft.frozen import frozen


@frozen
class Batching:
    """One model: what may be known about it, and what only measurements show."""

    tag: str
    known: TunableBatch
    fixed_s: float
    sample_s: float
    bandwidth: float

    def step_s(self, batch: int) -> float:
        """Seconds of a step alone."""
        return self.fixed_s + self.sample_s * batch

    def profile(self, batch: int) -> Profile:
        """Return the job's use of a device at a batch size."""
        step = self.step_s(batch)
        busy = self.sample_s * batch / step
        mem_gb = self.known.mem_gb(batch)
        return Profile(step, (), mem_gb, busy, self.bandwidth * busy, f"{self.tag}@{batch}")

    def speed(self, batch: int) -> float:
        """Progress alone at a batch size, relative to the initial one."""
        init = self.known.init
        stretch = self.step_s(batch) / self.step_s(init)
        return 1.0 / degradation(stretch, batch / init, self.known.efficiency(batch))


def _model(
    tag: str,
    init: int,
    fixed_s: float,
    sample_s: float,
    fixed_gb: float,
    sample_gb: float,
    noise: float,
    bandwidth: float,
) -> tuple[str, Batching]:
    known = TunableBatch(init, fixed_gb, sample_gb, noise)
    return tag, Batching(tag, known, fixed_s, sample_s, bandwidth)


# Initial batch, seconds of a step (fixed, a sample), GB (fixed, a sample), noise, bandwidth.
MODELS = dict(
    (
        _model("vgg16", 512, 0.020, 1.95e-4, 1.5, 0.0085, 1000.0, 0.6),
        _model("squeezenet", 512, 0.030, 6.0e-5, 1.0, 0.0040, 600.0, 0.5),
        _model("resnet50", 256, 0.025, 7.0e-4, 2.0, 0.0300, 1500.0, 0.6),
        _model("neumf", 8192, 0.012, 1.2e-6, 0.8, 0.0001, 12000.0, 0.8),
        _model("ad-gcl", 32, 0.060, 8.0e-4, 1.0, 0.0200, 20.0, 0.4),
        _model("lstm", 256, 0.050, 1.6e-4, 1.2, 0.0060, 200.0, 0.5),
        _model("bert", 32, 0.030, 5.5e-3, 4.0, 0.2200, 40.0, 0.5),
        _model("yolov5", 32, 0.050, 5.0e-3, 2.5, 0.2000, 60.0, 0.6),
    )
)


def find_batching(job: Job) -> Batching | None:
    """The model of a batch-adaptive job on one GPU, with its own initial batch; else None."""
    model = MODELS.get(job.model.lower())
    if model is None or job.batch is None or job.demand.gpus != 1:
        return None
    if job.batch.init == model.known.init:
        return model
    return replace(model, known=replace(model.known, init=job.batch.init))


def untuned(job: Job) -> Batching | None:  # noqa: ARG001 - of no job
    """No job's batch is known to matter."""
    return None


def batch_size(batch: Batch | None, init: int) -> int:
    """Samples of an update on one GPU; the initial batch where none was set."""
    return init if batch is None else batch.per_gpu * batch.accumulate


PROPORTIONAL = 0.75  # of the memory at the first batch, until a larger one was seen


@dataclass(slots=True)
class Shown:
    """One job: peaks of memory by batch, its quickest step at the first one, and the last report.

    `noise` is the gradient noise scale it measures.
    """

    peaks: dict[int, float] = field(default_factory=dict)
    alone_s: float = 0.0
    batch: int = 0
    step_s: float = 0.0
    noise: float = 0.0

    def add(self, init: int, batch: int, step_s: float, report: Report) -> None:
        self.batch, self.step_s = batch, step_s
        self.peaks.setdefault(batch, report.mem_gb or 0.0)
        self.noise = report.noise or self.noise
        if batch == init:
            self.alone_s = min(step_s, self.alone_s or step_s)

    def known(self, init: int) -> TunableBatch | None:
        """None before it trained at its first batch."""
        if not self.alone_s:
            return None
        first = self.peaks[init]
        grown = [(gb - first) / (size - init) for size, gb in self.peaks.items() if size > init]
        sample_gb = max(grown, default=PROPORTIONAL * first / init)
        return TunableBatch(init, first - sample_gb * init, sample_gb, self.noise or float(init))

    def pace(self, init: int) -> float | None:
        """Progress now as a part of that alone at the first batch."""
        known = self.known(init)
        if known is None:
            return None
        stretch, growth = self.step_s / self.alone_s, self.batch / init
        return 1.0 / degradation(stretch, growth, known.efficiency(self.batch))


@dataclass(slots=True)
class MeasuredBatchSizes:
    """Of all running jobs on one GPU whose batch may be changed."""

    _shown: dict[JobId, Shown] = field(default_factory=dict)

    def observe(self, job: Job, report: Report) -> None:
        """Take in a report that tells about a step and its batch."""
        if job.batch is None or job.demand.gpus != 1 or not report.step_s or not report.batch:
            return
        shown = self._shown.setdefault(job.id, Shown())
        shown.add(job.batch.init, round(report.batch), report.step_s, report)

    def known(self, job: Job) -> TunableBatch | None:
        """Return the known batch sizes of a job; None before it reported at its first one."""
        shown = self._shown.get(job.id)
        return None if shown is None or job.batch is None else shown.known(job.batch.init)

    def pace(self, job: Job) -> float | None:
        """A job's progress now as a part of that alone; None where it does not tell."""
        shown = self._shown.get(job.id)
        return None if shown is None or job.batch is None else shown.pace(job.batch.init)

    def forget(self, job: Job) -> None:
        self._shown.pop(job.id, None)

    def save(self) -> Any:
        return encode(self._shown)

    def load(self, saved: Any) -> None:
        self._shown = decode(dict[JobId, Shown], saved)
