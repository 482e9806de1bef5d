"""Make a searchable site of the documents: `python docs/make_site.py FOLDER`.

Every link is followed first: one that leads nowhere, also within a page, fails the run. The site
needs no server and no network; what a page shows or names of the repository is copied beside it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
HOME = ROOT / "docs" / "README.md"
READER = MarkdownIt("commonmark").enable("table")
STYLE = """\
:root { color-scheme: light dark; --line: #8884; }
body { margin: 0 auto; max-width: 54rem; padding: 1rem; font: 16px/1.55 system-ui, sans-serif; }
header { display: flex; gap: 1rem; align-items: baseline; border-bottom: 1px solid var(--line); }
header input { flex: 1; font: inherit; padding: .3rem .5rem; margin-bottom: .5rem; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid var(--line); border-radius: 4px; }
code { font-size: .9em; } img { max-width: 100%; }
table { display: block; overflow-x: auto; border-collapse: collapse; }
td, th { border: 1px solid var(--line); padding: .25rem .5rem; }
td, th { text-align: left; vertical-align: top; }
#found:not(:empty) { border-bottom: 1px solid var(--line); padding-bottom: 1rem; }
#found p { margin: .2rem 0 .6rem; font-size: .9em; }
"""
SEARCH = """\
const box = document.querySelector("input"), found = document.querySelector("#found");
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  found.replaceChildren();
  if (!words.length) return;
  const scored = PAGES.map((page) => {
    const text = page.text.toLowerCase(), title = page.title.toLowerCase();
    if (!words.every((word) => text.includes(word))) return null;
    const score = words.reduce((sum, w) => sum + text.split(w).length + 50 * title.includes(w), 0);
    return { page, score, at: Math.max(text.indexOf(words[0]) - 60, 0) };
  }).filter(Boolean).sort((a, b) => b.score - a.score).slice(0, 12);
  for (const { page, at } of scored) {
    const link = document.createElement("a"), text = document.createElement("p");
    link.href = HOME + page.url;
    link.textContent = page.title;
    text.textContent = page.text.slice(at, at + 180);
    found.append(link, text);
  }
  if (!scored.length) found.textContent = "No page has all these words.";
});
"""


def main(folder: Path) -> int:
    """Write the site, or say which links lead nowhere."""
    pages = {path: READER.parse(path.read_text()) for path in find_pages()}
    broken = [problem for path in pages for problem in check_links(path, pages)]
    if broken:
        print("\n".join(broken))
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for path, tokens in pages.items():
        title = next((t.children or [t] for t in tokens if t.type == "inline"), [])
        name = "".join(token.content for token in title)
        text = " ".join(" ".join(t.content for t in tokens if t.content).split())
        index.append({"title": name, "url": url_of(path), "text": text})
        for target in linked_files(path, tokens):
            if target not in pages and target.is_file():
                copy = folder / target.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target, copy)
        out = folder / url_of(path)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html_of(path, name, tokens, pages))
    (folder / "search.js").write_text(f"const PAGES = {json.dumps(index)};\n{SEARCH}")
    (folder / "style.css").write_text(STYLE)
    (folder / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={url_of(HOME)}">'
    )
    print(f"{len(pages)} pages in {folder / 'index.html'}")
    return 0


def find_pages() -> list[Path]:
    """The documents, and the pages of papers that they name."""
    return sorted(
        [
            *(ROOT / "docs").rglob("*.md"),
            *(ROOT / "packages").glob("*/README.md"),
            *(ROOT / "packages/weft-papers/src").rglob("README.md"),
            *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        ]
    )


def url_of(path: Path) -> str:
    """The place of a page in the site."""
    return path.relative_to(ROOT).with_suffix(".html").as_posix()


def inline(tokens: list[Token]) -> Iterator[Token]:
    """Every token within lines: links, pictures, code."""
    for token in tokens:
        yield from token.children or ()


def links(tokens: list[Token]) -> Iterator[tuple[Token, str, str]]:
    """Each link of a page with its attribute and where it leads, those of the web left out."""
    for token in inline(tokens):
        name = {"link_open": "href", "image": "src"}.get(token.type, "")
        target = str(token.attrs.get(name, "")) if name else ""
        if target and not urlsplit(target).scheme:
            yield token, name, target


def linked_files(path: Path, tokens: list[Token]) -> Iterator[Path]:
    """The files that a page names."""
    for _, _, target in links(tokens):
        if place := urlsplit(target).path:
            yield Path(os.path.normpath(path.parent / unquote(place)))


def check_links(path: Path, pages: dict[Path, list[Token]]) -> Iterator[str]:
    """What is wrong with the links of a page."""
    for _, _, target in links(pages[path]):
        parts = urlsplit(target)
        file = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
        where = f"{path.relative_to(ROOT)}: {target}"
        if file not in pages and not file.exists():
            yield f"{where} leads nowhere"
        elif parts.fragment and file in pages and parts.fragment not in anchors(pages[file]):
            yield f"{where}: that page has no such heading"


def anchors(tokens: list[Token]) -> list[str]:
    """The names by which headings are linked to, as GitHub makes them."""
    names: list[str] = []
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            text = "".join(child.content for child in token.children or ())
            name = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
            count = sum(
                re.fullmatch(rf"{re.escape(name)}(-\d+)?", known) is not None for known in names
            )
            names.append(f"{name}-{count}" if count else name)
    return names


def html_of(path: Path, title: str, tokens: list[Token], pages: dict[Path, list[Token]]) -> str:
    """A page of the site."""
    for token, name, target in links(tokens):
        parts = urlsplit(target)
        file = Path(os.path.normpath(path.parent / unquote(parts.path)))
        if parts.path and file in pages:
            place = os.path.relpath(ROOT / url_of(file), path.parent)
            token.attrs[name] = parts._replace(path=place).geturl()
    headings = (token for token in tokens if token.type == "heading_open")
    for token, anchor in zip(headings, anchors(tokens), strict=True):
        token.attrs["id"] = anchor
    home = os.path.relpath(ROOT, path.parent) + "/"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{escape(title)} - Weft</title>"
        '<meta name="viewport" content="width=device-width">'
        f'<link rel="stylesheet" href="{home}style.css"><header>'
        f'<a href="{home}{url_of(HOME)}">Weft</a>'
        '<input type="search" placeholder="Search" aria-label="Search"></header>'
        f'<div id="found"></div><main>{READER.renderer.render(tokens, READER.options, {})}</main>'
        f"<script>const HOME = {json.dumps(home)};</script>"
        f'<script src="{home}search.js"></script></html>\n'
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/site")))
