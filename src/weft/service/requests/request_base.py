"""Bodies whose every field is known."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RequestBody(BaseModel):
    """Fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
