"""The web page as files: read once, served as they are, with nothing from anywhere else."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from weft.core.errors import UnknownName
from weft.frozen import frozen

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
