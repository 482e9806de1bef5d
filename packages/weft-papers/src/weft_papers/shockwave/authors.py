"""Shockwave with the constants of the authors' code (Zheng et al., NSDI 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from weft_papers.shockwave.policy import Shockwave

# The authors' regulariser and exponent by GPUs, and those of their example.
CONSTANTS = {32: (1e-3, 12.0), 64: (10.0, 5.0), 128: (1e-3, 15.0), 256: (1e5, 5.0)}
EXAMPLE = (10.0, 5.0)


@dataclass(frozen=True)
class AuthorsShockwave(Shockwave):
    """A job whose epochs are counted is taken for done: it waits for idle GPUs if more is left."""

    _trusting = True

    def _constants(self, gpus: float) -> tuple[float, float]:
        return CONSTANTS.get(round(gpus), EXAMPLE)
