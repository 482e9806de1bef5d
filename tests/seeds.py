"""Which random cases are tried: fixed ones in `make test`, others with `CI=true` or if thorough.

A run that draws others names its seed when it begins and beside every failure. `WEFT_TEST_SEED`
set to that draws the same cases again, in properties and in tests with draws of their own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from shlex import quote

import pytest
from hypothesis import HealthCheck, settings

VARIABLE = "WEFT_TEST_SEED"
PROFILE = "--hypothesis-profile"
THOROUGH = "thorough"
LARGEST = 1 << 30


def seeds(count: int) -> range:
    """That many, for a test that draws its cases itself: from 0 where cases stay the same."""
    return range(varied(0), varied(count))


def varied(seed: int) -> int:
    """This seed, or another one where other cases are drawn."""
    return seed + int(os.environ.get(VARIABLE, "0"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed before hypothesis reads its options; workers get it by the environment."""
    if VARIABLE not in os.environ and _draws_others(config):
        os.environ[VARIABLE] = str(secrets.randbelow(LARGEST))
    seed = os.environ.get(VARIABLE)
    if seed is not None and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = seed
    # Nothing fails for slowness alone: a busy machine is no bug.
    slow = (HealthCheck.too_slow,)
    patient = settings(deadline=None, suppress_health_check=slow, derandomize=seed is None)
    settings.register_profile("fast", patient, max_examples=12)
    settings.register_profile(THOROUGH, patient, max_examples=100)
    settings.load_profile("fast")


def _draws_others(config: pytest.Config) -> bool:
    ci = os.environ.get("CI", "").lower() in ("1", "true")
    return ci or config.getoption(PROFILE) == THOROUGH


def pytest_itemcollected(item: pytest.Item) -> None:
    """Find by `-m hypothesis` what draws its cases itself, too."""
    if {"seeds", "varied"} & vars(getattr(item, "module", None) or object).keys():
        item.add_marker("hypothesis")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Name the seed, also in a run that is quiet otherwise."""
    if VARIABLE in os.environ and not hasattr(session.config, "workerinput"):
        session.config.get_terminal_writer().line(f"cases are drawn by {VARIABLE}={_seed()}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """How a failure can be seen again."""
    report = yield
    if report.failed and VARIABLE in os.environ:
        profile = item.config.getoption(PROFILE)
        words = ["pytest", *([f"{PROFILE}={profile}"] if profile else []), quote(item.nodeid)]
        report.sections.append(("the same cases again", f"{VARIABLE}={_seed()} {' '.join(words)}"))
    return report


def _seed() -> str:
    return os.environ[VARIABLE]
