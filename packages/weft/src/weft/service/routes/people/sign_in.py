"""The caller's identity, and signing in to the web page."""

from __future__ import annotations

from fastapi import APIRouter, Request

from weft.service.access.page_sessions import COOKIE, LASTS_S
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Service
from weft.service.http.replies import HttpProblem, Json
from weft.service.responses.answers import Done, Me

router = APIRouter(prefix=PREFIX, tags=["sign-in"], responses=PROBLEMS)


@router.get("/me", response_model=Me)
async def me(service: Service, who: Anyone) -> Json:
    """The owner of this token or session, and what it allows."""
    return Json(_me(who, signed_in=bool(len(service.tokens))))


@router.post("/sign-in", response_model=Me)
async def sign_in(request: Request, service: Service, who: Anyone) -> Json:
    """Start a session of the web page with a token; sets a cookie that scripts cannot read."""
    if not who.token:
        raise HttpProblem(409, "this service needs no sign-in", "there are no tokens")
    answer = Json(_me(who, signed_in=True))
    answer.set_cookie(
        COOKIE,
        service.sessions.begin(who),
        max_age=int(LASTS_S),
        path="/api/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.delete("/sign-in", response_model=Done)
async def sign_out(request: Request, service: Service) -> Json:
    """End the session."""
    service.sessions.end(request.headers)
    answer = Json(Done(done="signed out"))
    answer.delete_cookie(COOKIE, path="/api/", httponly=True, samesite="strict")
    return answer


def _me(who: Caller, *, signed_in: bool) -> Me:
    return Me(
        name=who.name,
        role=who.role,
        tenant=who.tenant,
        everywhere=who.everywhere,
        signed_in=signed_in,
    )
