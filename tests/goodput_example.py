"""The job whose numbers were worked out by hand for Pollux: step times, noise and batch limits."""

from __future__ import annotations

from weft.base.step_times import StepTime
from weft.perf.goodput.model import BatchBounds, Noise

TIMES = StepTime(0.05, 0.001, 0.04, 0.002, 0.02, 0.001, 2.0)
NOISE = Noise(0.5, 2.0, 128)
LIMITS = BatchBounds(4096, 32, 256)
