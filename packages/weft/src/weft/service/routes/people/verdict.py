"""The judge's last verdict about this service, and a new one."""

from __future__ import annotations

from dataclasses import fields

from fastapi import APIRouter

from weft.service.context import PREFIX, PROBLEMS, Admin, Anyone, Context, Service
from weft.service.http.replies import HttpProblem, Json
from weft.service.responses.admin import FindingAnswer, PromiseCount, TenantCount, VerdictAnswer

router = APIRouter(prefix=PREFIX, tags=["accounting"], responses=PROBLEMS)


@router.get("/verdict", response_model=VerdictAnswer)
async def verdict(service: Service, who: Anyone) -> Json:
    """Show what was promised in the last month and how much held, when last checked."""
    if not who.everywhere:
        raise HttpProblem(
            403, "the verdict covers all tenants", "use a token of an admin or viewer of '*'"
        )
    return Json(_answer(service))


@router.post("/verdict", response_model=VerdictAnswer, status_code=202)
async def judge_now(
    service: Service,
    who: Admin,  # noqa: ARG001 - admins only
) -> Json:
    """Begin to check the last month's log; the verdict comes when `running` is over."""
    service.verdicts.begin()
    return Json(_answer(service), 202)


def _answer(service: Context) -> VerdictAnswer:
    last = service.verdicts.last or {}
    plain = {each.name for each in fields(VerdictAnswer)} - {"promises", "tenants", "findings"}
    return VerdictAnswer(
        **{name: value for name, value in last.items() if name in plain},
        running=service.verdicts.running,
        next=service.verdicts.next_at,
        promises=[PromiseCount(**row) for row in last.get("promises", ())],
        tenants=[TenantCount(**row) for row in last.get("tenants", ())],
        findings=[FindingAnswer(**row) for row in last.get("findings", ())],
    )
