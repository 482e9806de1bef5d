"""What the documents say is true: links resolve, commands run, snippets run, tables are whole.

A page is played from top to bottom in an empty folder. Blocks of `python` run in one namespace;
lines of `console` that start with `weft ` run in this process; a `text` block right after one
command is its output, times of decisions aside; `<!-- file: NAME -->` before a block saves it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from typer.testing import CliRunner

from weft.cli.main import cli
from weft.core.spec.registry import names

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {"out", "build", "dist"}


def shipped(parts: tuple[str, ...]) -> bool:
    return not SKIPPED & set(parts) and not any(part.startswith(".") for part in parts)


PAGES = sorted(p for p in ROOT.rglob("*.md") if shipped(p.relative_to(ROOT).parts))
FENCE = re.compile(r"(?:<!-- file: (\S+) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
MILLISECONDS = re.compile(r" +\d+\.\d+ ms")
TORCH = re.compile(r"^\s*(import|from) (torch|weft_train|weft\.train)\b", re.MULTILINE)
ENDLESS = ("serve", "top", "mcp")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    file: str
    follows: bool  # only blank lines lie between it and the block before


def blocks(page: Path) -> Iterator[Block]:
    text, end = page.read_text(), 0
    for match in FENCE.finditer(text):
        follows = not text[end : match.start()].strip()
        yield Block(match[2], match[3], match[1] or "", follows)
        end = match.end()


def played() -> Iterator[ParameterSet]:
    for page in PAGES:
        texts = [block.text for block in blocks(page) if block.language in ("console", "python")]
        if texts:
            marks = [pytest.mark.torch] if any(map(TORCH.search, texts)) else []
            yield pytest.param(page, marks=marks, id=name_of(page))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text())
    targets = [a or b for a, b in LINK.findall(prose)]

    dead = [t for t in targets if "://" not in t and not leads_somewhere(page, t)]

    assert not dead


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or not file.is_relative_to(ROOT):
        return False
    return not anchor or anchor in anchors(file)


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*played()])
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no processes to start: the same, sooner
    monkeypatch.setenv("COLUMNS", "80")
    namespace: dict[str, Any] = {"__name__": "page"}
    printed = ""

    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.text)
            sys.modules.pop(Path(block.file).stem, None)
        if block.language == "python":
            run_python(page, block, namespace)
        if block.language == "console":
            printed = run_commands(block)
        elif block.language == "text" and block.follows and printed:
            assert timeless(block.text) == timeless(printed)
            printed = ""
        else:
            printed = ""


def run_python(page: Path, block: Block, namespace: dict[str, Any]) -> None:
    module = type(sys)("page")
    module.__dict__.update(namespace)
    sys.modules["page"] = module  # dataclasses look their module up
    try:
        exec(compile(block.text, name_of(page), "exec"), module.__dict__)
        for test in [held for name, held in vars(module).items() if name.startswith("test_")]:
            test()
    finally:
        del sys.modules["page"]
    namespace.update(module.__dict__)


def run_commands(block: Block) -> str:
    """What the only command printed, or nothing where there are several."""
    commands = [line for line in block.text.splitlines() if line.startswith("weft ")]
    printed = ""
    for command in commands:
        typed, _, file = command.partition(" > ")
        assert shlex.split(typed)[1] not in ENDLESS, f"{command}: never ends; write it in ```sh"
        ran = CliRunner().invoke(cli, shlex.split(typed)[1:])
        assert ran.exit_code == 0, f"{command}: {ran.output}"
        printed = ran.stdout
        if file:
            Path(file).write_text(printed)
    return printed if len(commands) == 1 else ""


def timeless(text: str) -> str:
    return MILLISECONDS.sub(" _ ms", text).rstrip()


def test_the_reference_pages_are_fresh() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_reference.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_readme_fits_on_two_screens_and_counts_the_policies() -> None:
    text = (ROOT / "README.md").read_text()

    assert len(text.splitlines()) <= 100
    assert f"{len(names('policy'))} policies" in text


def test_the_index_of_the_documents_is_whole() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    linked = {target.partition("#")[0] for target, _ in LINK.findall(index)}
    pages = [p for p in PAGES if p.is_relative_to(ROOT / "docs") and p.name != "README.md"]

    missing = [
        name_of(p)
        for p in pages
        if p.parent.name != "policies" and p.relative_to(ROOT / "docs").as_posix() not in linked
    ]

    assert not missing


def test_every_named_thing_has_a_line_in_the_reference() -> None:
    traces = (ROOT / "docs" / "reference" / "traces.md").read_text()
    predictors = (ROOT / "docs" / "how-to" / "choose-a-predictor.md").read_text()

    missing = [n for n in names("trace") if f"`{n}`" not in traces]
    missing += [n for n in names("predictor") if f"`{n}`" not in predictors]

    assert not missing


def test_every_field_of_the_result_is_defined() -> None:
    import weft

    text = (ROOT / "docs" / "reference" / "result.md").read_text()
    result = weft.compare("tiny-20", ["fifo"], seeds=(0, 1), processes=1)
    whole = result.as_dict(per_job=True)
    known = {*whole, *whole["policies"]["fifo"]}
    run = whole["policies"]["fifo"]["by_seed"][0]
    known |= {*run, *run["decide_ms"], *run["per_job"][0]}

    missing = [field for field in known if f"`{field}`" not in text]

    assert not missing
