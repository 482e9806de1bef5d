"""Pages for people, served whole: they work where nothing else can be reached."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from weft.core.errors import UnknownName
from weft.frozen import frozen
from weft.service.context import Service
from weft.service.http.replies import write_json

router = APIRouter(include_in_schema=False)


@router.get("/")
async def index(request: Request) -> Response:
    """The web page; what it shows it asks the API for."""
    return _send(request, INDEX)


@router.get("/docs")
async def api_page(request: Request) -> Response:
    """The API, read from its schema in the browser."""
    return _send(request, "api.html")


@router.get("/openapi.json")
async def api_schema(request: Request, service: Service) -> Response:
    """The API's schema; made beside the loop, which would stand still for a quarter of a second."""
    body = await service.read(lambda: write_json(request.app.openapi()))
    return Response(body, media_type="application/json")


@router.get("/web/{name:path}")
async def page_file(name: str, request: Request) -> Response:
    """A file of the page."""
    return _send(request, name)


def _send(request: Request, name: str) -> Response:
    file = find_file(name)
    headers = {**HEADERS, "ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)


# ---- The web page as files: read once, served as they are, with nothing from anywhere else


# Nothing inline and nothing of other sites: what a job's name holds cannot run.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again each time, sent again only if it changed
}
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


@frozen
class PageFile:
    """One file; `tag` changes when its content does."""

    body: bytes
    media_type: str
    tag: str


def find_file(name: str) -> PageFile:
    """A file of the page by its path; UnknownName for one that there is not."""
    file = page_files().get(name)
    if file is None:
        raise UnknownName(f"the page has no file {name[:100]!r}", hint="the page is at /")
    return file


@cache
def page_files() -> dict[str, PageFile]:
    """Every file of the page, by its path below `web`; only those are served."""
    pages: dict[str, PageFile] = {}
    _collect(files("weft.service") / "web", "", pages)
    return pages


def _collect(folder: Traversable, prefix: str, page_files: dict[str, PageFile]) -> None:
    for file in folder.iterdir():
        name = f"{prefix}{file.name}"
        if file.is_dir():
            _collect(file, f"{name}/", page_files)
            continue
        media_type = TYPES.get(name[name.rfind(".") :])
        if media_type is not None:
            body = file.read_bytes()
            page_files[name] = PageFile(
                body, media_type, f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            )
