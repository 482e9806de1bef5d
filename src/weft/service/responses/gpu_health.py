"""How the GPUs of machines are, as the driver tells it."""

from __future__ import annotations

from dataclasses import field

from weft.frozen import frozen_by_name


@frozen_by_name
class GpuHealth:
    """One GPU: `fault` says why it should not be used, `aside` that it is not, for that reason.

    `notes` are what else was seen: its temperature, errors of programs.
    """

    gpu: int
    fault: str = ""
    aside: bool = False
    notes: list[str] = field(default_factory=list)
