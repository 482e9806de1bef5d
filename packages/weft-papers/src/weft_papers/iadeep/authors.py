"""IADeep with the degradation of the authors' code (Cai et al., SC 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.model.job import JobId
from weft_papers.iadeep.devices import SharedDevices
from weft_papers.iadeep.policy import IADeep


def degradation(stretch: float, growth: float, efficiency: float) -> float:
    """As their code: multiplied by the efficiency, which rewards large batches twice."""
    return stretch / growth * efficiency


@dataclass(frozen=True)
class AuthorsIADeep(IADeep):
    """A job's stretch is multiplied by the efficiency that its progress was divided by."""

    def degrade(self, devices: SharedDevices, job: JobId, stretch: float) -> float:
        """The authors' degradation of a job that is so much slower than alone."""
        known = devices.batch_sizes(job)
        return stretch if known is None else stretch * known.efficiency(devices.size(job)) ** 2
