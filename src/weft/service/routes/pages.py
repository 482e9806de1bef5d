"""Pages for people, served whole: they work where nothing else can be reached."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)


@router.get("/docs", response_class=HTMLResponse)
def api_page() -> str:
    """The API, read from its schema in the browser."""
    return (files("weft.service") / "web" / "api.html").read_text(encoding="utf-8")
