"""What a job file may say of the messages between a job's workers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Pattern, Phase, Traffic
from weft.service.requests.request_base import RequestBody

Amount = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
MOST_PHASES = 256


class PhaseFields(RequestBody):
    """A stretch of an iteration in which the job sends."""

    start_s: Amount
    seconds: Amount
    gbps: Amount


class TrafficFields(RequestBody):
    """One iteration: how long it takes, what it sends, and when.

    `share` is the part of it in which workers wait for each other, `gbit` what every link that the
    job crosses carries for it. Policies that look at links decide by it; nobody else does.
    """

    iteration_s: Amount
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    gbit: Amount = 0.0
    pattern: Pattern = Pattern.RING
    phases: list[PhaseFields] = Field(default_factory=list, max_length=MOST_PHASES)
    sensitive: bool = True

    @model_validator(mode="after")
    def _possible(self) -> TrafficFields:
        try:
            self.traffic()
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
        return self

    def traffic(self) -> Traffic:
        """The same for the core."""
        phases = tuple(Phase(fields.start_s, fields.seconds, fields.gbps) for fields in self.phases)
        return Traffic(
            self.iteration_s, self.share, self.gbit, self.pattern, phases, self.sensitive
        )
