"""Published rules, and whether tests of whole policies notice mistakes in them.

`python -m benchmarks.formulas [POLICY ...]` reads the table of `docs/explanation/formulas.md`. In
each function it plants mistakes, one at a time, until its worked example and its test of a whole
policy have each failed because of one, and names the tests that none of `--count` made fail. The
last line counts the rules.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from benchmarks.mistakes import BASES, ROOT, Mutant, changes_of, make_mutant, name_module
from benchmarks.mutants import list_modules, list_tests, notices, warm_libraries

TABLE = ROOT / "docs" / "explanation" / "formulas.md"
# Mistakes in functions without arithmetic, comparisons or numbers to change: the last goes first,
# the sign is lost, a threshold is met at half, progress is not taken to its logarithm.
PLANTED = {
    "pieces.order.Arrival": ("np.arange(len(view.table))", "np.arange(len(view.table))[::-1]"),
    "pieces.order.RemainingTime.rank": ("key=left", "key=-left"),
    "pieces.order.Queues._queue_of": ("attained + EPS", "attained * 2.0"),
    "gavel.max_sum_throughput": ("program.throughput()", "-program.throughput()"),
    "shockwave.log_progress": ("AT_KNOTS", "KNOTS"),
}


class Formula(NamedTuple):
    """A row of the table: a function, and tests by name; empty where there is none."""

    policy: str
    function: str
    worked: str
    whole: str


def main(argv: Sequence[str] | None = None) -> int:
    """Print each row; fail where a test noticed nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formulas")
    parser.add_argument("policy", nargs="*")
    parser.add_argument("--count", type=int, default=12, help="mistakes at most")
    given = parser.parse_args(argv)
    warm_libraries()  # nothing of weft: each mistake is imported by its own process
    rows = [row for row in read_table() if row.function]
    rows = [row for row in rows if not given.policy or row.policy in given.policy]
    noticed = 0
    for row in rows:
        mistakes = list(_mistakes(row.function, given.count))
        unnoticed = _try_row(row, mistakes)
        noticed += not unnoticed and bool(mistakes)
        verdict = f"NOT NOTICED by {', '.join(unnoticed)}" if unnoticed else "noticed"
        verdict = verdict if mistakes else "NO MISTAKE to plant"
        print(f"{row.policy:<18}{row.function:<56}{verdict}", flush=True)
    print(f"{noticed} of {len(rows)} rules: every named test noticed a mistake")
    return 0 if noticed == len(rows) else 1


def read_table() -> list[Formula]:
    """The rows of the document."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    cells = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines)
    return [Formula(*row) for row in cells]


def find_function(dotted: str) -> tuple[Path, ast.AST] | None:
    """The file and the definition of a function, method or class below weft or weft_papers."""
    parts = dotted.split(".")
    for count in range(len(parts) - 1, 0, -1):
        places = (base.joinpath(*parts[:count]) for base in BASES)
        for file in (file for place in places for file in list_modules(place)):
            node: ast.AST | None = ast.parse(file.read_text())
            for name in parts[count:]:
                node = _find_inside(node, name)
            if node is not None:
                return file, node
    return None


def _find_inside(node: ast.AST | None, name: str) -> ast.AST | None:
    bodies = node.body if isinstance(node, ast.Module | ast.ClassDef) else []
    named = (n for n in bodies if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)
    return next(named, None)


@cache
def find_tests() -> dict[str, list[str]]:
    """The files of each test, by its name."""
    named = re.compile(r"^(?:async )?def (test_\w+)", re.M)
    by_name: dict[str, list[str]] = {}
    for file in list_tests():
        for name in named.findall(file.read_text()):
            by_name.setdefault(name, []).append(str(file))
    return by_name


def _try_row(row: Formula, mistakes: Sequence[Mutant]) -> list[str]:
    left = [test for test in (row.worked, row.whole) if test]
    for mutant in mistakes:
        left = [test for test in left if not _notices(test, mutant)]
        if not left:
            break
    return left


def _mistakes(dotted: str, count: int) -> Iterator[Mutant]:
    function = find_function(dotted)
    if function is None:
        raise SystemExit(f"{dotted}: no such function below weft or weft_papers")
    file, node = function
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    mutants = (make_mutant(*change) for change in changes_of(file))
    inside = [m for m in mutants if node.lineno <= m.line <= (node.end_lineno or node.lineno)]
    random.Random(0).shuffle(inside)
    yield from inside[:count] or _plant(dotted, file, node)


def _plant(dotted: str, file: Path, node: ast.FunctionDef | ast.ClassDef) -> Iterator[Mutant]:
    if dotted not in PLANTED:
        return
    before, after = PLANTED[dotted]
    whole = ast.unparse(ast.parse(file.read_text()))
    function = indent(ast.unparse(node), " " * node.col_offset).lstrip()
    assert function in whole, f"{dotted}: not found as it is printed"
    assert before in function, f"{dotted}: there is no {before}"
    source = whole.replace(function, function.replace(before, after))
    yield Mutant(name_module(file), node.lineno, before, after, source)


def _notices(test: str, mutant: Mutant) -> bool:
    return notices(mutant, [f"{file}::{test}" for file in find_tests()[test]])


if __name__ == "__main__":
    sys.exit(main())
