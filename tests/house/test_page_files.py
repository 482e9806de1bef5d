"""The web page's files: libraries as they were published, nothing inline, small."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from weft.service.routes.people.pages import page_files

WEB = Path(__file__).resolve().parents[2] / "packages" / "weft" / "src" / "weft" / "service" / "web"
VENDOR = WEB / "vendor"
CHECKER = Path(__file__).resolve().parents[1] / "browser" / "vendor"
MOST_BYTES = 500_000
OURS = sorted([*WEB.glob("*.html"), *(WEB / "js").rglob("*.js"), *(WEB / "css").glob("*.css")])


@pytest.mark.parametrize(("folder", "licences"), [(VENDOR, 3), (CHECKER, 1)], ids=["page", "tests"])
def test_libraries_are_as_they_were_published(folder: Path, licences: int) -> None:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    computed = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name not in ("README.md", "SHA256SUMS")
    }

    assert computed == sums
    assert sum(name.startswith("LICENSE-") for name in sums) == licences


def test_the_whole_page_is_small() -> None:
    assert sum(len(page_file.body) for page_file in page_files().values()) < MOST_BYTES


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(WEB)))
def test_nothing_is_inline_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 400
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert "innerHTML" not in text and "eval(" not in text
    if path.suffix == ".html":
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text)
