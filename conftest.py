"""Shared by all tests: commands, the public research data, and what is printed of skips."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from benchmarks.data import data_folder, missing

pytest_plugins = ["tests.seeds"]

# A run in the background of a shell has Ctrl-C ignored, and would hand that on to what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Commands of the environment are found as in a shell where it is activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

# Tests run side by side; threads of PyTorch and scikit-learn that wait must not keep cores busy.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Services that name no folder keep their state in the user's: each test is a user of its own.
HOMES = tempfile.TemporaryDirectory(prefix="weft-users-", ignore_cleanup_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each test a folder for state of its own; the developer's service is not found either."""
    os.environ["XDG_STATE_HOME"] = str(Path(HOMES.name) / f"{abs(hash(item.nodeid)):x}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were skipped, a line for each reason with the number of its tests."""
    reports = terminalreporter.getreports("skipped")
    counts = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if counts:
        terminalreporter.section("skipped")
    for reason, count in counts.most_common():
        terminalreporter.write_line(f"{count:>6}  {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looking for garbage again and again while thousands of tests are collected takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """Return the path of a file or folder of research data, or skip the test without it."""

    def find(path: str) -> Path:
        if absent := missing(path):
            pytest.skip(absent)
        return data_folder() / path

    return find


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    """A service that ends in this process lets all garbage be collected again.

    Otherwise hypothesis, in whichever test comes next, takes its own generator for garbage.
    """
    frozen = gc.get_freeze_count()  # newer Pythons start with some
    yield
    assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen


@pytest.fixture
def ray_network() -> Iterator[None]:
    """A network namespace without anybody, for whatever of Ray is started in the test."""
    from tests.clusters.ray import ThrowAwayRay

    namespace = ThrowAwayRay(Path(tempfile.mkdtemp(prefix="wr-", dir="/tmp")))
    namespace.begin()
    with namespace.entered():
        yield
    namespace.down()
