"""The policies there are."""

from __future__ import annotations

from fastapi import APIRouter

from weft.app.policy_pages import PolicyPage, read_policy_pages
from weft.core.plan.about import Controls
from weft.service.context import PROBLEMS, Anyone, Service
from weft.service.http.json_body import Json
from weft.service.responses.watch import PolicyEntries, PolicyEntry

router = APIRouter(tags=["cluster"], responses=PROBLEMS)


@router.get("/policies", response_model=PolicyEntries)
async def policies(service: Service, who: Anyone) -> Json:  # noqa: ARG001 - any token will do
    """Every policy with its paper, what it optimises and its parameters, and which one decides."""
    pages = await service.read(read_policy_pages)
    supports = service.driver.engine.supports
    entries = [_entry(page, supports) for page in pages]
    return Json(PolicyEntries(active=service.live.policy.text, policies=entries))


def _entry(page: PolicyPage, supports: Controls) -> PolicyEntry:
    missing = page.controls & ~supports
    names = ", ".join(flag.name.lower() for flag in missing if flag.name)
    return PolicyEntry(
        name=page.name,
        summary=page.summary,
        said=page.said,
        parameters=page.settable,
        tags=list(page.tags),
        refused=f"it sets {names}, which this engine cannot honour" if names else "",
    )
