"""How a job lives with others on its GPUs, as people write it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from weft.core.model.job import LEAST_MEM_GB, LEAST_SHARE, MOST_MEM_GB, MOST_SLOWDOWN, Job
from weft.service.requests.request_base import RequestBody

GUARANTEED_SLOWDOWN = 1.1  # of jobs whose priority is guaranteed, unless they say otherwise
Share = Annotated[float, Field(ge=LEAST_SHARE, le=1.0, allow_inf_nan=False)]


class ShareFields(RequestBody):
    """What a job promises and is promised where it shares a GPU.

    `slowdown` is how many times as long as alone its steps may take, `memory_gb` the memory that
    it needs of each GPU.
    """

    slowdown: Annotated[float, Field(ge=1.0, le=MOST_SLOWDOWN, allow_inf_nan=False)] | None = None
    memory_gb: (
        Annotated[float, Field(ge=LEAST_MEM_GB, le=MOST_MEM_GB, allow_inf_nan=False)] | None
    ) = None


def _read_bool(value: Any) -> Any:
    """`share: false` refuses company, `share: true` allows it."""
    return ("allowed" if value else "never") if isinstance(value, bool) else value


Sharing = Annotated[Literal["allowed", "never"] | Share | ShareFields, BeforeValidator(_read_bool)]


def part_of(share: str | float | ShareFields) -> float:
    """The part of a GPU that is asked for."""
    return share if isinstance(share, float) else 1.0


def terms_of(share: str | float | ShareFields, priority: str) -> dict[str, Any]:
    """Fields of a job: whether it may have company, at which slowdown, with which memory."""
    asked = share if isinstance(share, ShareFields) else ShareFields()
    slowdown = asked.slowdown
    if slowdown is None and priority == "guaranteed":
        slowdown = GUARANTEED_SLOWDOWN
    return {
        "shareable": share != "never",
        "slowdown": slowdown,
        "gpu_mem_gb": asked.memory_gb,
    }


def share_of(job: Job, priority: str) -> dict[str, Any]:
    """The field of a job file that says the same; empty where it is the default."""
    if job.demand.share < 1.0:
        return {"share": job.demand.share}
    if not job.shareable:
        return {"share": "never"}
    implied = GUARANTEED_SLOWDOWN if priority == "guaranteed" else None
    asked = {
        "slowdown": None if job.slowdown == implied else job.slowdown,
        "memory_gb": job.gpu_mem_gb,
    }
    share = {name: value for name, value in asked.items() if value is not None}
    return {"share": share} if share else {}
