"""Runs that have ended, kept in a folder: what was computed once is read, not computed again.

A run is known by what it depends on: the jobs and machines, the policy with whatever its files
hold, every option, and Weft's own sources. So a comparison that was stopped goes on, and one with
a policy more computes that policy alone.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from weft.app.policy_file import PYTHON, read_files
from weft.app.simulate.run import prepare, run_one
from weft.app.simulate.setup import Setup
from weft.core.codec.plain_values import decode, encode
from weft.core.paths import expand
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import read_spec
from weft.frozen import frozen
from weft.sim.result import Outcome
from weft.version import __version__

SOURCES = Path(__file__).parents[2]


@frozen
class KeptRuns:
    """Runs one setup, or reads how it ended from `folder`."""

    folder: Path

    def __call__(self, setup: Setup, report: Callable[[float], None] | None = None) -> Outcome:
        """The outcome; `report` gets the fraction done of a run that has to be made."""
        kept = self.folder / f"{_digest(setup)}.json.gz"
        if kept.exists():
            with gzip.open(kept, "rt", encoding="utf-8") as lines:
                known = json.load(lines)
            outcome: Outcome = decode(Outcome, known)
            return replace(outcome, metrics={**outcome.metrics, **_counts(known["metrics"])})
        outcome = run_one(setup, report)
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        with gzip.open(partial, "wt", compresslevel=1, encoding="utf-8") as out:
            json.dump(encode(outcome), out)
        partial.replace(kept)
        return outcome


def _counts(metrics: Mapping[str, float | str]) -> dict[str, int]:
    """The whole numbers, which would be read as any others and then be printed as such."""
    return {name: value for name, value in metrics.items() if isinstance(value, int)}


def _digest(setup: Setup) -> str:
    digest = sha256()
    for text in _facts(setup):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def _facts(setup: Setup) -> Iterator[str]:
    """All that an outcome depends on, as texts."""
    yield _sources()
    trace, cluster = prepare(setup)
    yield repr((trace.name, trace.cluster, trace.origin, trace.detail, trace.weights))
    yield from map(repr, cluster.nodes)
    yield from map(repr, trace)
    assert isinstance(setup.policy, (str, PartSpec))
    yield setup.policy_name
    if isinstance(setup.policy, str) and PYTHON in setup.policy:
        yield expand(setup.policy.split(PYTHON)[0] + ".py").read_text()
    else:
        yield repr(read_files(read_spec("policy", setup.policy)))
    yield repr(replace(setup, workload="", cluster="", policy="", events=None))
    for named in (setup.profiles, setup.pairs, setup.perf):
        yield from map(_stamp, _files(named))


def _files(named: str) -> list[Path]:
    path = expand(named.split("=")[-1]) if named else None
    if path is None or not path.exists():
        return []
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def _stamp(path: Path) -> str:
    known = path.stat()
    return f"{path} {known.st_size} {known.st_mtime_ns}"


@cache
def _sources() -> str:
    """Weft as it is installed: its version, and every module of it."""
    return "\n".join([__version__, *map(_stamp, sorted(SOURCES.rglob("*.py")))])
