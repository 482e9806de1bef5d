"""Plausible mistakes in a policy, one at a time, and whether its own tests notice them.

`python -m benchmarks.mutants POLICY` draws changes of comparisons, arithmetic, numbers, signs,
conditions, and least and most from the policy's sources, and runs its tests against each in a
process of its own, quick tests first. What survives is printed with its line: kill it by a test in
which the rule decides the outcome, or see that nothing can tell it from the original.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
CROWD_S = 30  # CPU seconds of one crowd at most; most take one
QUICK_S = 0.6  # tests that take longer are run only against what the others let through
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
TOLERANCES = {"EPS", "PRECISION", "SLACK", "SLACK_S", "TINY"}
CROWD = ROOT / "tests" / "golden" / "crowd.txt"
# Tests of what has none of its own name.
TESTS = {
    "pieces.order": ("unit/pieces/test_queues", "unit/pieces/test_plain_left"),
    "pieces.place": (
        *("unit/pieces/test_places", "unit/pieces/test_whole_nodes", "papers/test_fgd_place"),
        *("unit/pieces/wrap/test_cassini_wrapper", "papers/test_mapa"),
    ),
    "pieces.share": ("unit/pieces/test_share_pairs", "unit/pieces/test_strangers"),
    "pieces.size": ("unit/pieces/test_restart_value", "papers/test_optimus"),
    "pieces.reclaim": ("papers/test_lyra",),
    "pieces.wrap.tenants.lend": ("property/test_tenant_rules",),
    "compose": ("property/test_compositions",),
    "elasticflow": ("unit/pieces/wrap/test_promise", "unit/pieces/test_min_share"),
}
# Policies of which a crowd tries what has no name of its own there.
CROWDS = {
    "pieces.order": ("las", "srtf", "tiresias", "gittins", "qssf", "srsf", "weft"),
    "pieces.place": ("fifo", "themis", "cassini", "synergy", "gandiva", "mapa", "sia"),
    "pieces.share": ("lucid", "weft", "antman", "muri"),
    "pieces.size": ("elasticflow", "sia", "weft", "optimus", "slaq"),
    "pieces.admit": ("fifo", "las", "allox", "sjf"),
    "pieces.pack": ("fifo", "las", "mapa", "allox"),
    "pieces.fit": ("fifo", "quota", "lend", "hived"),
    "pieces.reclaim": ("lyra",),
    "pieces.users": ("allox", "gandiva_fair", "astraea"),
    "pieces.wrap.no_preempt": ("firm",),
    "pieces.wrap.skip_failing": ("spare",),
}
SKIPPED = ("About", "Taxonomy", "classify", "InvalidConfig", "PlanError", "Reason")


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


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was caught and what survived."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("policy", help="a policy, or a module or package below weft")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="CPU seconds at most")
    parser.add_argument("--tests", nargs="*", help="files; by default those named after it")
    parser.add_argument("--crowd", action="store_true", help="what it does in a crowd alone")
    given = parser.parse_args(argv)
    _warm()
    files = find_sources(given.policy)
    crowds = [] if given.tests else find_crowds(given.policy)
    usual = given.tests or ([] if given.crowd else find_tests(given.policy))
    if not crowds and not usual:
        raise SystemExit(f"{given.policy}: no tests are named after it; give --tests")
    sound: set[str] = set()  # crowds that are served as they were, where nothing is changed
    times: dict[_Files, _Times] = {}  # of tests, once crowds let something through
    drawn = [mutation for file in files for mutation in changes_of(file)]
    random.Random(given.seed).shuffle(drawn)
    caught, survived, begun = 0, [], time.process_time() + _children_s()
    for change in drawn[: given.count]:
        if _children_s() + time.process_time() - begun > given.seconds:
            break
        mutant = make_mutant(*change)
        code = _try_in_crowds(mutant, crowds) if crowds else 0
        if noticed := code != 0:  # who noticed one mistake often notices the next
            crowds.insert(0, crowds.pop(max(code - 1, 0)))
            _check_sound(crowds[0], sound)
        if not noticed and usual:
            more = [] if given.tests else find_importers(mutant.module)
            noticed = _tests_notice(mutant, tuple(dict.fromkeys([*usual, *more])), times)
        caught += noticed
        if not noticed:
            survived.append(mutant)
    tried = caught + len(survived)
    print(f"{given.policy}: {caught} of {tried} caught ({caught / max(tried, 1):.0%})")
    for mutant in survived:
        print(f"  survived {mutant}")
    return 0


def find_sources(name: str) -> list[Path]:
    """The module of a policy, or all of its package."""
    base = ROOT / "src" / "weft"
    for below in (base / "policies" / name, base / name.replace(".", "/")):
        if below.is_dir():
            return sorted(path for path in below.rglob("*.py") if path.name != "__init__.py")
        if below.with_suffix(".py").is_file():
            return [below.with_suffix(".py")]
    raise SystemExit(f"{name}: no policy and no module below weft")


def find_tests(name: str) -> list[str]:
    """Test files that are named after it."""
    last = name.rpartition(".")[2]
    tests = sorted(ROOT.glob(f"tests/papers/test_{last}.py"))
    tests += sorted(ROOT.glob(f"tests/papers/test_{last}_*.py"))
    tests += sorted(ROOT.glob(f"tests/unit/**/test_{last}.py"))
    tests += sorted(ROOT.glob(f"tests/unit/**/test_{last}_*.py"))
    tests += [ROOT / "tests" / f"{path}.py" for path in TESTS.get(name, ())]
    return [str(test) for test in tests]


def find_importers(module: str) -> list[str]:
    """Test files of single parts and of papers that import from a module."""
    asked = f"from {module} import"
    files = sorted([*ROOT.glob("tests/unit/**/test_*.py"), *ROOT.glob("tests/papers/test_*.py")])
    return [str(file) for file in files if asked in file.read_text()]


def find_crowds(name: str) -> list[str]:
    """Of the crowds that policies are held to, those that try this policy, wrapper or part."""
    asked = {name.rpartition(".")[2], *CROWDS.get(name, ())}
    known = [line.split("  ")[0] for line in CROWD.read_text().splitlines()]
    return [spec for spec in known if not asked.isdisjoint(re.split(r"[:|,= ]", spec))]


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
    module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
    return Mutant(module, node.lineno, before, ast.unparse(changed), source)


def _places(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions that decide something: no declarations, messages, annotations or parameters."""
    if isinstance(tree, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(tree, ast.Call) and _called(tree) in SKIPPED:
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
    elif isinstance(node, ast.BoolOp):
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
    return number is not None and 0.0 < abs(number) <= TINY


def _number(node: ast.Constant) -> float | None:
    """The number that it is; truths, texts and imaginary numbers are none."""
    truth = isinstance(node.value, bool)
    return node.value if isinstance(node.value, int | float) and not truth else None


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
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or (isinstance(node, ast.Constant) and isinstance(node.value, str))


class _Changed(MetaPathFinder, Loader):
    """Imports one module from a changed source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Ours for the module in question, else somebody else's."""
        if name != self._mutant.module:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        return ModuleSpec(name, self, origin=spec.origin)

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        exec(compile(self._mutant.source, self._mutant.module, "exec"), module.__dict__)


def _warm() -> None:
    """What every process needs; no policy is imported, so that each imports its own."""
    import weft.app.simulate.api
    import weft.perf.linear  # noqa: F401

    warm_libraries()


def warm_libraries() -> None:
    """What every process needs of others."""
    import highspy  # noqa: F401
    import hypothesis.strategies
    import scipy.optimize  # noqa: F401

    # What fails need not be made small.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants", deadline=None, derandomize=True, max_examples=25, database=None, phases=phases
    )
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)


_Files = tuple[str, ...]
_Times = tuple[list[str], list[str], float]


def _tests_notice(mutant: Mutant, files: _Files, times: dict[_Files, _Times]) -> bool:
    """Whether a test of these files fails, quick ones first."""
    if files not in times:
        times[files] = _time_tests(files)
    quick, slow, seconds = times[files]
    # Without a name pytest would run whatever there is.
    some = [tests for tests in (quick, slow) if tests]
    return any(_fails(mutant, partial(_run, tests, []), seconds) for tests in some)


def _time_tests(files: Sequence[str]) -> _Times:
    """Quick and slow tests of these files, and the seconds of all; they must pass as they are."""
    read, write = os.pipe()
    if not (child := os.fork()):
        watch = _Watch()
        # Contracts take long and hold for most mistakes.
        code = _run([*files, "-m", "not slow and not data", "-k", "not contract"], [watch])
        text = "\n".join(f"{seconds} {test}" for test, seconds in watch.took.items())
        with os.fdopen(write, "w") as pipe:
            pipe.write(text)
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = [line.split(" ", 1) for line in pipe.read().splitlines()]
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit(f"the tests do not pass as they are: {' '.join(files)}")
    took = sorted((float(seconds), test) for seconds, test in lines)
    quick = [test for seconds, test in took if seconds <= QUICK_S]
    return quick, [test for seconds, test in took if seconds > QUICK_S], sum(s for s, _ in took)


def notices(mutant: Mutant, options: Sequence[str]) -> bool:
    """Whether pytest with these options fails, or takes minutes."""
    return _fails(mutant, partial(_run, options, []), 60.0)


class _Watch:
    """How long each test took."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set-up and call together."""
        self.took[report.nodeid] = self.took.get(report.nodeid, 0.0) + report.duration


def _fails(mutant: Mutant | None, tests: Callable[[], int], usual_s: float) -> bool:
    """Whether a test fails, or does not come to an end within some times what it takes."""
    return _tried(mutant, tests, usual_s) != 0


def _tried(mutant: Mutant | None, tests: Callable[[], int], usual_s: float) -> int:
    """What tests return in a process of their own; below 0 where they do not come to an end."""
    if mutant is not None and mutant.module in sys.modules:
        raise SystemExit(f"{mutant.module} is imported already: no change of it would be tried")
    if not (child := os.fork()):
        limit = int(3 + 2.5 * usual_s)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        if mutant is not None:
            sys.meta_path.insert(0, _Changed(mutant))
        os._exit(tests())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _check_sound(crowd: str, sound: set[str]) -> None:
    """Stop where a crowd that noticed something is not served as it was without a change."""
    if crowd not in sound and _try_in_crowds(None, [crowd]):
        raise SystemExit(f"{crowd}: the crowd is not served as it was: pytest tests/golden")
    sound.add(crowd)


def _try_in_crowds(mutant: Mutant | None, crowds: Sequence[str]) -> int:
    return _tried(mutant, partial(_try_crowds, crowds), float(CROWD_S * len(crowds)))


def _try_crowds(crowds: Sequence[str]) -> int:
    """Which crowd, from 1, is served otherwise than it was, or not at all; 0 for none."""
    number = 0
    try:
        from tests.golden.crowd import describe, read_golden

        known = read_golden()
        with tempfile.TemporaryDirectory() as folder:
            for number, crowd in enumerate(crowds, start=1):
                spec, ground = crowd.split(" in ")
                until = int(time.process_time()) + CROWD_S
                resource.setrlimit(
                    resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1])
                )
                if describe(spec, ground, Path(folder)) != known[crowd]:
                    return number
    except BaseException:
        return max(number, 1)
    return 0


def _run(tests: Sequence[str], plugins: Sequence[object]) -> int:
    """Run pytest in silence; its exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    options += ["--hypothesis-profile", "mutants"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *tests], plugins=list(plugins)))


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
