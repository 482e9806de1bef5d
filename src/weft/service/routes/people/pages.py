"""Pages for people, served whole: they work where nothing else can be reached."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from weft.service.context import Service
from weft.service.http.json_body import write_json
from weft.service.http.page_files import HEADERS, INDEX, find_file

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
