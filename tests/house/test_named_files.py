"""Every file that a command in the documents names is there, or the page makes it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.test_docs import PAGES, ROOT, blocks, name_of

FILE = re.compile(r"[\w./-]+\.(yaml|yml|py|csv|toml|json|jsonl|sbatch|trace|html|pem|sh|txt)")
MAKES = ("--report", "--out", "--events", "--output", "-o", ">")  # what follows is written
# Public data that is not ours to ship, and what only an administrator has.
ELSEWHERE = {
    "workload-1.csv",
    "max_min_fairness.trace",
    "physical_cluster_throughputs.json",
    "cert.pem",
    "key.pem",
}


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every command that is typed on a page, lines that go on put together."""
    for block in blocks(page):
        if block.language in ("sh", "text", "console"):
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.startswith("weft "):
                    yield shlex.split(line, comments=True)


def read_files(words: list[str]) -> Iterator[str]:
    for before, word in zip(["", *words], words, strict=False):
        for part in word.split():
            if FILE.fullmatch(part) and before not in MAKES and not part.startswith("/"):
                yield part


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_files_that_commands_name_exist(page: Path) -> None:
    made = {block.file for block in blocks(page) if block.file} | ELSEWHERE
    missing: list[str] = []
    for words in commands(page):
        missing += [
            f"{shlex.join(words)}: {file}"
            for file in read_files(words)
            if file not in made and not (ROOT / file).exists()
        ]
        at = [words.index(flag) + 1 for flag in MAKES if flag in words]
        made |= {words[i] for i in at if i < len(words)}

    assert missing == []


def test_a_file_that_is_not_there_is_found() -> None:
    assert list(read_files(["weft", "submit", "no.yaml", "--out", "made.json"])) == ["no.yaml"]
