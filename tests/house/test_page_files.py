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
ELSEWHERE = (
    WEB.parents[1] / "report" / "page.js",
    Path(__file__).resolve().parents[2] / "docs" / "reference" / "which-policy.js",
)
# What takes a text for a page or a program. Texts that jobs and people chose are only ever shown.
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|setHTML|"
    r"createContextualFragment|\beval\(|new Function|javascript:|setAttribute\(\s*.on|"
    r"setTimeout\(\s*[\"'`]",
    re.IGNORECASE,
)
# An address that a view links to is one of its own: nobody's text begins it.
FOREIGN = re.compile(
    r"\b(?:href|src|action|formaction|srcset|style)=\$\{(?!(?:[\w.]+ \? )?link\(|\{)"
)
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
    assert not SINKS.findall(text) and not FOREIGN.findall(text)
    if path.suffix == ".html":
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text)


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: path.name)
def test_other_pages_only_show_texts_too(path: Path) -> None:
    assert not SINKS.findall(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "script",
    [
        "row.innerHTML = job.name",
        "html`<p dangerouslySetInnerHTML=${{ __html: reason }} />`",
        'box.insertAdjacentHTML("beforeend", line)',
        "setTimeout(`run(${name})`, 10)",
        "html`<a href=${job.model}>model</a>`",
        "html`<img src=${metric.picture} />`",
    ],
)
def test_a_script_that_would_run_words_of_jobs_is_found(script: str) -> None:
    assert SINKS.search(script) or FOREIGN.search(script)
