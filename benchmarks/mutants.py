"""Plausible mistakes in a policy, one at a time, and whether its own tests notice them.

`python -m benchmarks.mutants POLICY` draws changes of comparisons, arithmetic, numbers, signs,
conditions, and least and most from the policy's sources. Each is tried in a process of its own: by
the policy's quick tests, then by crowds, whose fingerprint says that something changed but not what
is right, then by its slow tests. What survives is printed with its line: kill it by a test in which
the rule decides the outcome, or see that nothing can tell it from the original.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.mistakes import BASES, ROOT, Mutant, changes_of, make_mutant

CROWD_S = 30  # CPU seconds of one crowd at most; most take one
QUICK_S = 0.6  # tests that take longer are run only against what the others let through
CROWD = ROOT / "tests" / "golden" / "crowd.txt"
# Tests of what has none of its own name.
TESTS = {
    "pieces.order": ("test_queues", "test_plain_left"),
    "pieces.place": (
        *("test_places", "test_whole_nodes", "test_fgd_place"),
        *("test_cassini_wrapper", "test_mapa"),
    ),
    "pieces.share": ("test_share_pairs", "test_strangers"),
    "pieces.size": ("test_restart_value", "test_optimus"),
    "pieces.wrap.tenants.lend": ("test_tenant_rules",),
    "compose": ("test_compositions",),
    "elasticflow": ("test_promise", "test_min_share"),
    "formulas.node_sleeper": ("test_node_sleep", "test_node_sleep_simulated"),
    "pai": ("test_published_predictors", "test_fitted_models"),
    "qssf": ("test_published_predictors", "test_fitted_models"),
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
    "pieces.wrap.no_preempt": ("no_preempt",),
    "pieces.wrap.skip_failing": ("skip_failing",),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was caught and what survived."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("policy", help="a policy, or a module or package below weft or weft_papers")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="CPU seconds at most")
    parser.add_argument("--tests", nargs="*", help="files; by default those named after it")
    parser.add_argument("--own", action="store_true", help="no crowds")
    parser.add_argument("--crowd", action="store_true", help="crowds alone")
    given = parser.parse_args(argv)
    files = find_sources(given.policy)
    _warm(files)
    trial = _Trial(
        [] if given.tests or given.own else find_crowds(given.policy),
        given.tests or ([] if given.crowd else find_tests(given.policy)),
        importers=not (given.tests or given.crowd),
    )
    drawn = [mutation for file in files for mutation in changes_of(file)]
    random.Random(given.seed).shuffle(drawn)
    noticed, survived, begun = Counter[str](), [], time.process_time() + _children_s()
    for change in drawn[: given.count]:
        if _children_s() + time.process_time() - begun > given.seconds:
            break
        mutant = make_mutant(*change)
        if by := trial.run(mutant):
            noticed[by] += 1
        else:
            survived.append(mutant)
    caught, tried = noticed.total(), noticed.total() + len(survived)
    crowds = f", {noticed['crowds']} by crowds alone" if noticed["crowds"] else ""
    print(f"{given.policy}: {caught} of {tried} caught ({caught / max(tried, 1):.0%}){crowds}")
    for mutant in survived:
        print(f"  survived {mutant}")
    return 0


class _Trial:
    """Who is asked about each mistake: quick tests, crowds, slow tests."""

    def __init__(self, crowds: list[str], usual: Sequence[str], *, importers: bool) -> None:
        self._crowds, self._usual, self._importers = crowds, usual, importers
        self._sound: set[str] = set()  # crowds served as they were, where nothing is changed
        self._times: dict[_Files, _Times] = {}

    def run(self, mutant: Mutant) -> str:
        """Who notices it first; nothing where nobody does."""
        more = find_importers(mutant.module) if self._importers else []
        files = tuple(dict.fromkeys([*self._usual, *more]))
        if not files and not self._crowds:
            raise SystemExit(f"{mutant.module}: no tests are named after it; give --tests")
        if files and files not in self._times:
            self._times[files] = _time_tests(files)
        quick, slow, seconds = self._times[files] if files else ([], [], 0.0)
        if _tests_notice(mutant, quick, seconds):
            return "quick tests"
        if self._crowds and (code := _try_in_crowds(mutant, self._crowds)):
            # The crowd that noticed one mistake often notices the next.
            self._crowds.insert(0, self._crowds.pop(max(code - 1, 0)))
            _check_sound(self._crowds[0], self._sound)
            return "crowds"
        return "slow tests" if _tests_notice(mutant, slow, seconds) else ""


def find_sources(name: str) -> list[Path]:
    """The module of a policy, or all of its package."""
    for base in (BASES[0] / "policies", *BASES):
        if files := list_modules(base / name.replace(".", "/")):
            return files
    raise SystemExit(f"{name}: no policy and no module below weft or weft_papers")


def list_modules(place: Path) -> list[Path]:
    """The modules of a package without its tests and comparisons, or the module itself."""
    if not place.is_dir():
        return [file for file in [place.with_suffix(".py")] if file.is_file()]
    return [
        path
        for path in sorted(place.rglob("*.py"))
        if path.name != "__init__.py"
        and not any(
            part == "tests" or part.startswith("published")
            for part in path.relative_to(place).parts
        )
    ]


def list_tests() -> list[Path]:
    """Every test file of the repository."""
    below = ("tests", "packages")
    return sorted(path for folder in below for path in (ROOT / folder).rglob("test_*.py"))


def find_tests(name: str) -> list[str]:
    """Test files that are named after it."""
    last = name.rpartition(".")[2]
    every = [path for path in list_tests() if _is_quick(path)]
    tests = [path for path in every if path.stem == f"test_{last}"]
    tests += [path for path in every if path.stem.startswith(f"test_{last}_")]
    tests += [path for path in list_tests() if path.stem in TESTS.get(name, ())]
    return [str(test) for test in tests]


def _is_quick(path: Path) -> bool:
    """Of a single part, a policy, a paper or a command; the others start whole services."""
    tests = ROOT / "tests"
    return not path.is_relative_to(tests) or path.parent in (tests / "policies", tests / "cli")


def find_importers(module: str) -> list[str]:
    """Test files of single parts and of papers that import from a module."""
    asked = f"from {module} import"
    files = [path for path in list_tests() if _is_quick(path)]
    return [str(file) for file in files if asked in file.read_text()]


def find_crowds(name: str) -> list[str]:
    """Of the crowds that policies are held to, those that try this policy, wrapper or part."""
    asked = {name.rpartition(".")[2], *CROWDS.get(name, ())}
    known = [line.split("  ")[0] for line in CROWD.read_text().splitlines()]
    return [spec for spec in known if not asked.isdisjoint(re.split(r"[:|,= ]", spec))]


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


def _warm(files: Sequence[Path]) -> None:
    """What every process needs; what is to be changed is not imported, so that each imports it.

    Where that is no policy, simulations may need it: then nothing of weft is.
    """
    if all(file.is_relative_to(BASES[1]) or file.parent.name == "policies" for file in files):
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


def _tests_notice(mutant: Mutant, tests: Sequence[str], seconds: float) -> bool:
    """Whether one of these fails; without a name pytest would run whatever there is."""
    return bool(tests) and _fails(mutant, partial(_run, tests, []), seconds)


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


def notices(mutant: Mutant | None, options: Sequence[str]) -> bool:
    """Whether pytest with these options fails, or takes minutes; without a mutant, as it is."""
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
