"""What rank 0 reports of a training, by the names of `weft.wire.messages.Report`."""

from __future__ import annotations

from weft.train.batch.noise import GradientNoise
from weft.train.data.loader import Loader
from weft.train.data.sampling import Batch
from weft.train.step import Step
from weft.train.turns.stopwatch import Stopwatch


def describe_steps(
    watch: Stopwatch, step: Step, batch: Batch, noise: GradientNoise
) -> dict[str, float]:
    """Times, samples and gradients of the last steps."""
    return {
        **measure_times(watch, step, batch),
        **describe_batch(batch),
        **describe_noise(noise, batch),
    }


def measure_times(watch: Stopwatch, step: Step, batch: Batch) -> dict[str, float]:
    """Medians of the last steps."""
    values = {name: watch.median(name) for name in ("step_s", "grad_s", "token_s")}
    data_s = watch.median("data_s") * batch.accumulate
    return {**values, "sync_s": step.measure_sync_s(), "data_s": data_s}


def describe_batch(batch: Batch) -> dict[str, float]:
    """Samples of a step, and how they are dealt."""
    return {
        "batch": float(batch.total),
        "per_gpu": float(batch.per_gpu),
        "accumulate": float(batch.accumulate),
    }


def describe_noise(noise: GradientNoise, batch: Batch) -> dict[str, float]:
    """What is known about the gradients, and what a step of this batch is worth."""
    values = {"gain": noise.gain(float(batch.total))}
    if noise.known:
        values |= {"noise": noise.scale, "grad_var": noise.var, "grad_sqr": noise.sqr}
    return values


def count_progress(
    epoch: int, position: int, epochs: int, loader: Loader | None, *, done: bool
) -> dict[str, float]:
    """The running epoch, the part of all epochs that is trained on, and samples of all of them."""
    whole = loader.length if loader is not None else 1
    part = (epoch + position / whole) / epochs if epochs else 0.0
    return {
        "epoch": float(max(min(epoch, epochs - 1), 0)),
        "progress": 1.0 if done else min(part, 1.0),
        **({"work": float(epochs * whole)} if epochs and loader is not None else {}),
    }
