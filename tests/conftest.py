"""Shared by all tests: where the public research data is, if it is there."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# `make test` tries fewer examples than `make test-all`, which asks for `thorough`.
# Nothing fails for slowness alone: a busy machine is no bug.
PATIENT = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,), derandomize=True)
settings.register_profile("fast", PATIENT, max_examples=25)
settings.register_profile("thorough", PATIENT, max_examples=100)
settings.load_profile("fast")

# A run in the background of a shell has Ctrl-C ignored, and would hand that on to what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of public traces and profiles; tests that need it are skipped without it."""
    folder = Path(os.environ.get("WEFT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the public research data is not here; set WEFT_DATA to its folder")
    return folder


@pytest.fixture
def ray_network() -> Iterator[None]:
    """A network namespace without anybody, for whatever of Ray is started in the test."""
    from tests.clusters.ray import ThrowAwayRay

    namespace = ThrowAwayRay(Path(tempfile.mkdtemp(prefix="wr-", dir="/tmp")))
    namespace.begin()
    with namespace.entered():
        yield
    namespace.down()
