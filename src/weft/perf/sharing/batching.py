"""What a batch size does to a job: step time, memory, use of the GPU, progress of a sample.

A step takes a fixed time, in which the GPU is idle, and a time in proportion to its samples, in
which it is busy. So a large batch amortises the fixed time and fills the GPU, a small one leaves
room to neighbours; and by the gradient noise scale samples of a large batch are worth less.

The eight models are those of IADeep's evaluation (Cai et al., SC 2023); their parameters are
ours: plausible for a GPU of 24 GB, measured nowhere. Most initial batches are near what is best
alone; VGG16, BERT and YOLOv5 were given larger ones, as people do who fill a GPU.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.knowledge.knowledge import TunableBatch
from weft.core.knowledge.profile import Profile
from weft.core.model.job import Batch, Job
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
        """What the job does with a device at a batch size."""
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
