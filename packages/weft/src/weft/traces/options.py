"""Options of a workload: filters for files, size and load for generators."""

from __future__ import annotations

from math import inf

from weft.core.errors import InvalidConfig, did_you_mean
from weft.frozen import frozen

ATTEMPTS = ("sum", "span", "last", "split")


@frozen
class Options:
    """Options for reading a file; the defaults keep every GPU job that ran.

    `window` is in seconds from the trace's origin, end excluded. `scale_arrivals` divides the
    gaps between jobs, `scale_duration` multiplies lengths. `censored=False` drops jobs whose
    recorded length is only a lower bound. `kinds=True` makes the `gpu_type` column of our own
    CSV a constraint. `attempts` says what several Philly attempts make of a length. `cluster`
    and `subset` pick one part of a file that holds several. `tables` is a file of measured speeds
    for formats that need one: with it jobs of Shockwave's traces train in regimes.
    """

    states: tuple[str, ...] = ()
    min_duration: float = 0.0
    max_duration: float = inf
    clip_duration: float = inf
    max_gpus: int | None = None
    window: tuple[float, float] | None = None
    rebase: bool = False
    tenants: tuple[str, ...] = ()
    sample: int | None = None
    seed: int = 0
    scale_arrivals: float = 1.0
    scale_duration: float = 1.0
    cpu_jobs: bool = False
    censored: bool = True
    kinds: bool = False
    attempts: str = "sum"
    cluster: str = ""
    subset: str = ""
    tables: str = ""

    def __post_init__(self) -> None:
        if self.attempts not in ATTEMPTS:
            raise InvalidConfig(
                f"attempts={self.attempts!r} is unknown{did_you_mean(self.attempts, ATTEMPTS)}",
                hint=f"use one of {', '.join(ATTEMPTS)}",
            )
        for name in ("scale_arrivals", "scale_duration", "clip_duration"):
            _positive(name, getattr(self, name))
        if self.sample is not None:
            _positive("sample", self.sample)


@frozen
class DrawRequest:
    """Request to a generator; None leaves the choice to the workload.

    `gpus` is the capacity of the cluster the user chose and `kinds` its GPU kinds; arrivals are
    spaced so that the drawn jobs offer `load` on it. No job is larger than `gpus` or `max_gpus`.
    """

    seed: int = 0
    jobs: int | None = None
    load: float | None = None
    gpus: int | None = None
    max_gpus: int | None = None
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("jobs", "load", "gpus", "max_gpus"):
            value = getattr(self, name)
            if value is not None:
                _positive(name, value)
        if self.seed < 0:
            raise InvalidConfig(f"seed={self.seed} is negative", hint="use 0 or more")


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise InvalidConfig(f"{name}={value} cannot be used", hint=f"{name} must be above 0")
