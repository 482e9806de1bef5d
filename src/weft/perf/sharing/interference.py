"""How fast jobs run beside each other on one GPU, and whether they fit.

`rates` answers for a group by the model that ships with the package, fitted to measurements on an
H200 by `python -m benchmarks.interference_ship`; `benchmarks.interference_fit` makes one from
other measurements. The law itself is in `interference_law`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import InvalidConfig, did_you_mean
from weft.perf.sharing.interference_law import UNKNOWN, Features, Law, exposure, settle, worst

TIMESLICING, MPS = "timeslicing", "mps"
Floats = NDArray[np.float64]
CONTEXT_GB = 0.5  # what a CUDA context holds beside the job's own tensors


@dataclass(frozen=True, slots=True, eq=False)
class Interference:
    """Normalised rates of groups, under each discipline there is a law for.

    `known` are the features of measured workloads by `MODEL:BATCH`, `errors` what the fit states
    about itself.
    """

    laws: Mapping[str, Law]
    known: Mapping[str, Features] = field(default_factory=dict)
    errors: Mapping[str, Any] = field(default_factory=dict)

    def rates(self, group: Sequence[Features], discipline: str) -> Floats:
        """The rate of each member over its rate alone: in (0, 1], and 1 for a single member."""
        law = self.laws.get(discipline)
        if law is None:
            raise InvalidConfig(
                f"no sharing discipline {discipline!r}{did_you_mean(discipline, self.laws)}",
                hint=f"there are {', '.join(sorted(self.laws))}",
            )
        if len(group) < 2:
            return np.ones(len(group))
        return np.array(_rates(law, tuple(group)))

    def features(self, model: str, batch: int | None = None) -> Features:
        """Of a measured workload at the nearest measured batch size; `UNKNOWN` of any other.

        Without a batch size the largest measured one is meant, which is the worst neighbour.
        """
        name = self.nearest(model, batch)
        return UNKNOWN if name is None else self.known[name]

    def nearest(self, model: str, batch: int | None = None) -> str | None:
        """The measured workload `MODEL:BATCH` that is nearest; None where none is of the model."""
        sizes = {int(size): f"{name}:{size}" for name, size, _ in self._named() if name == model}
        if not sizes:
            return None
        if batch is None:
            return sizes[max(sizes)]
        return sizes[min(sizes, key=lambda size: abs(math.log(size / max(batch, 1))))]

    def _named(self) -> Iterator[tuple[str, str, Features]]:
        for name, features in self.known.items():
            model, _, batch = name.rpartition(":")
            yield model, batch, features


def rates(group: Sequence[Features], discipline: str) -> Floats:
    """The rate of each member over its rate alone, by the model that ships with the package."""
    return load_shipped().rates(group, discipline)


def fits_memory(group: Sequence[Features], gpu_mem_gb: float) -> bool:
    """Whether the members' peaks and a context for each fit; a single job is taken to fit."""
    return len(group) < 2 or sum(job.mem_gb + CONTEXT_GB for job in group) <= gpu_mem_gb


@lru_cache(maxsize=65_536)
def _rates(law: Law, group: tuple[Features, ...]) -> tuple[float, ...]:
    if all(job.busy is not None for job in group):
        return tuple(settle([exposure(law, job) for job in group], law.cost))
    return tuple(_own(law, group, at) for at in range(len(group)))


def _own(law: Law, group: tuple[Features, ...], at: int) -> float:
    """A member's rate where some are not measured: heavy to others, light to themselves."""
    share, light, heavy = worst(law)
    jobs = [(share, heavy) if job.busy is None else exposure(law, job) for job in group]
    if group[at].busy is None:
        jobs[at] = share, light
    return settle(jobs, law.cost)[at]


@cache
def load_shipped() -> Interference:
    """The model fitted to measurements on an H200; `errors` states how well."""
    return parse(files("weft.perf").joinpath("data/interference.json").read_text())


def parse(text: str) -> Interference:
    """The model that `dump` wrote."""
    try:
        held = json.loads(text)
        laws = {name: _law(law) for name, law in held["laws"].items()}
        known = {name: Features(**facts) for name, facts in held["known"].items()}
        return Interference(laws, known, held["errors"])
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidConfig(
            f"not an interference model: {error!r}",
            hint="`python -m benchmarks.interference_ship` writes one",
        ) from error


def _law(held: dict[str, Any]) -> Law:
    def rows(name: str) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(row) for row in held[name])

    return Law(rows("weights"), rows("bumps"), rows("centres"), held["width"], held["cost"])


def dump(model: Interference) -> str:
    """The model as JSON, numbers to five digits."""
    whole = {
        "errors": dict(model.errors),
        "laws": {name: _short(asdict(law)) for name, law in model.laws.items()},
        "known": {name: _short(asdict(job)) for name, job in model.known.items()},
    }
    return json.dumps(whole, indent=1) + "\n"


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _short(held) for key, held in value.items()}
    return [_short(held) for held in value] if isinstance(value, (list, tuple)) else value
