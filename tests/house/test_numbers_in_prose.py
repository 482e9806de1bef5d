"""Numbers in prose come from the code, and CONTRIBUTING names files that exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from benchmarks.compare_speed import POLICIES as COMPARED
from tests.house.test_docs import ROOT

from weft.core.knowledge.knowledge import Knowledge
from weft.core.spec.registry import names

WORDS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
NUMBER = rf"\b(\d[\d,]*|{'|'.join(WORDS)}|half a|a dozen)"
# What changes with every commit is not counted in prose: `python -m benchmarks.house` counts it.
OURS = re.compile(rf"{NUMBER} (?:lines|modules|rooms|packages|parts) (?:of|that|in)\b", re.I)
COUNTED = re.compile(rf"{NUMBER} (policies|wrappers|predictors|engines)\b", re.I)
FOLDERS = ("docs/explanation", "docs/how-to", "docs/tutorials")
PAGES = [ROOT / "README.md", *(p for f in FOLDERS for p in sorted((ROOT / f).glob("*.md")))]
# Page and sentence -> the number that it has to be.
TRUE = {
    ("README.md", "34 policies"): len(names("policy")),
    ("scale.md", "eight policies"): len(COMPARED),
}
# Sentences about policies that they name themselves, and measurements that name their command.
LISTED = {
    ("fair-comparisons.md", "six policies"),
    ("fairness.md", "Five policies"),
    ("results.md", "22 policies"),
    ("rubick-and-arena.md", "Two policies"),
    ("verify-a-result.md", "two policies"),
    ("web-page.md", "two policies"),
}


def number(text: str) -> int:
    word = text.split()[0].lower().replace(",", "")
    return WORDS.index(word) + 2 if word in WORDS else int(word)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_counts_of_our_own_things_are_those_of_the_code(page: Path) -> None:
    text = page.read_text()

    assert [match[0] for match in OURS.finditer(text)] == []
    for match in COUNTED.finditer(text):
        sentence = page.name, match[0]
        if sentence not in LISTED:
            assert number(match[0]) == TRUE.get(sentence), sentence


@pytest.mark.parametrize(("page", "sentence"), sorted([*TRUE, *LISTED]))
def test_every_sentence_that_is_checked_is_still_there(page: str, sentence: str) -> None:
    assert any(sentence in p.read_text() for p in PAGES if p.name == page)


def test_the_parts_of_knowledge_are_those_of_the_class() -> None:
    text = (ROOT / "docs" / "explanation" / "design.md").read_text()
    table = text[text.index("<!-- knowledge:") : text.index("<!-- end of knowledge")]

    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)

    assert sorted(listed) == sorted(part.name for part in fields(Knowledge))


def test_paths_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tops = {path.name for path in ROOT.iterdir()} - {".venv"}  # what commands make
    spans = re.findall(r"`([^`\s]+)`", text)
    paths = [span for span in spans if "/" in span and span.split("/")[0] in tops]

    absent = [path for path in paths if not list(ROOT.glob(re.sub(r"NAME|<name>", "*", path)))]

    assert len(paths) > 10
    assert absent == []
