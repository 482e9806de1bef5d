"""What could be written by mistake in a source: one changed comparison, number or sign each.

What changes nothing is no mistake: texts, declarations and annotations, tolerances and the digits
that something is rounded to, and numbers that stand for what is beyond all others.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASES = tuple(  # of what can be changed
    ROOT / "packages" / project / "src" / package
    for project, package in (("weft", "weft"), ("weft-papers", "weft_papers"))
)
COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum"}
NAMES |= {"maximum": "minimum", "argmin": "argmax", "argmax": "argmin", "ceil": "floor"}
TINY = 1e-6  # a tolerance: twice as much of it decides nothing
HUGE = 1e12  # beyond all others: twice as much of it is no further
TOLERANCES = {"EPS", "DIGITS", "PRECISION", "SHIFT_DIGITS", "SLACK", "SLACK_S", "TINY"}
SKIPPED: tuple[str, ...] = (
    "About",
    "Taxonomy",
    "classify",
    "declare",
    "InvalidConfig",
    "PlanError",
    "Reason",
)
SKIPPED += ("bad_values", "field", "TypeVar", "NewType")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed source: where, what it was and what it became."""

    module: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def name_module(file: Path) -> str:
    """The dotted name of a module of one of the distributions."""
    base = next(base for base in BASES if file.is_relative_to(base))
    return ".".join(file.relative_to(base.parent).with_suffix("").parts)


def changes_of(file: Path) -> Iterator[tuple[Path, int, int]]:
    """Every change of one node: the file, which expression, and which of its changes."""
    for index, node in enumerate(_places(ast.parse(file.read_text()))):
        for number, _ in enumerate(() if _is_tolerance(node) else _changes(node)):
            yield file, index, number


def make_mutant(file: Path, index: int, number: int) -> Mutant:
    """The source with one change."""
    tree = ast.parse(file.read_text())
    node = list(_places(tree))[index]
    changed, before = list(_changes(node))[number], ast.unparse(node)
    fresh = _Replace(node, changed).visit(tree)
    source = ast.unparse(ast.fix_missing_locations(fresh))
    return Mutant(name_module(file), node.lineno, before, ast.unparse(changed), source)


def _places(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions that decide something: no declarations, messages, annotations or parameters."""
    if isinstance(tree, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(tree, ast.Call) and _called(tree) in SKIPPED:
        return
    if isinstance(tree, ast.IfExp) and any(map(_is_prose, (tree.body, tree.orelse))):
        return
    if isinstance(tree, ast.Call) and _called(tree) == "round":
        yield from _places(tree.args[0])
        return
    if isinstance(tree, ast.expr):
        yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "args") and isinstance(
            tree, ast.FunctionDef | ast.AnnAssign | ast.ClassDef
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_docstring(child):
                yield from _places(child)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    """What a node may become by mistake."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        yield ast.Compare(node.left, [COMPARE[type(node.ops[0])]()], node.comparators[:1])
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        yield node.left
        if isinstance(node.op, ast.Mult):
            yield node.right
    elif isinstance(node, ast.BoolOp) and not any(map(_is_text, node.values)):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant) and (number := _number(node)) is not None:
        yield ast.Constant(number * 2 if number else 1)
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield ast.Name(NAMES[node.id], node.ctx)
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield ast.Attribute(node.value, NAMES[node.attr], node.ctx)


def _is_tolerance(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return any(
            _is_tolerance(side)
            for side in (node.left, node.right)
            if not isinstance(side, ast.BinOp)
        )
    if isinstance(node, ast.Name):
        return node.id in TOLERANCES
    number = _number(node) if isinstance(node, ast.Constant) else None
    return number is not None and (0.0 < abs(number) <= TINY or abs(number) >= HUGE)


def _is_text(node: ast.expr) -> bool:
    constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return constant or isinstance(node, ast.JoinedStr)


def _number(node: ast.Constant) -> float | None:
    """The number that it is; truths, texts and imaginary numbers are none."""
    truth = isinstance(node.value, bool)
    return node.value if isinstance(node.value, int | float) and not truth else None


def _is_prose(node: ast.expr) -> bool:
    """Whether it is a text for people, and not a name."""
    return isinstance(node, ast.JoinedStr) or (_is_text(node) and " " in ast.unparse(node))


class _Replace(ast.NodeTransformer):
    """Put one node in the place of another."""

    def __init__(self, target: ast.expr, by: ast.expr) -> None:
        self._target, self._by = target, copy.deepcopy(by)

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or what replaces it."""
        return self._by if node is self._target else self.generic_visit(node)


def _called(call: ast.Call) -> str:
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _is_docstring(node: ast.AST) -> bool:
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return alone or (isinstance(node, ast.expr) and _is_text(node))
