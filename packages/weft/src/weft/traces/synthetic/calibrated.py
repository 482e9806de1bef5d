"""Synthetic workloads calibrated to public traces: size, state, length, arrival, user.

Each aspect draws from its own child stream of the seed, so that changing one option does not
reshuffle the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from weft.core.errors import InvalidConfig
from weft.plural import say_gpus
from weft.traces.draft import Workload, demand
from weft.traces.draw.arrivals import (
    PHILLY_TENANTS,
    VENUS_TENANTS,
    Ints,
    Lengths,
    bursts,
    draw_users,
    tenants_of,
    times,
)
from weft.traces.draw.params import Family, Floats, family
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe, number_names

Flags = npt.NDArray[np.bool_]

# Jobs of a burst mostly resemble each other: how often, and how closely (our choice).
ALIKE, LIKENESS = 0.8, 0.8


def draw(want: DrawSettings, key: str, tenants: Sequence[int] = ()) -> Drawn:
    """Draw sizes, states and lengths, then space the arrivals so that they offer the load."""
    source = family(key)
    arrivals, sizing, states, scores, people = want.streams(5)
    burst_of = bursts(want.jobs, source.arrival.burst, arrivals)
    alike = sizing.random(int(burst_of[-1]) + 1) < ALIKE
    sizes = draw_sizes(source, want.limit, burst_of, alike, sizing)
    state = states.choice(len(source.states), size=want.jobs, p=source.state_p)
    score = burst_scores(burst_of, alike, scores)
    lengths = np.round(Lengths(source).draw(score, sizes, source.state_offset[state]), 3)
    users, homes = people_of(source, burst_of, tenants, people)
    return Drawn(
        when=times(source.arrival, burst_of, want.span(sizes * lengths), arrivals),
        lengths=lengths,
        demands=[demand(size) for size in sizes.tolist()],
        states=[source.states[i] for i in state.tolist()],
        users=users,
        tenants=homes,
    )


def people_of(
    source: Family, burst_of: Ints, tenants: Sequence[int], rng: np.random.Generator
) -> tuple[list[str], list[str]]:
    """User and tenant of each job: one user a burst, one tenant a user."""
    user = draw_users(int(burst_of[-1]) + 1, source.users, source.user_sigma, rng)[burst_of]
    if not tenants:
        return number_names("u", user), []
    home = tenants_of(source.users, tenants, rng)[user]
    return number_names("u", user), number_names("t", home)


def draw_sizes(
    source: Family, limit: int, burst_of: Ints, alike: Flags, rng: np.random.Generator
) -> Floats:
    """GPUs of each job; sizes above `limit` are taken out of the distribution."""
    allowed = source.sizes <= limit
    if not allowed.any():
        raise InvalidConfig(
            f"no job of this workload fits {say_gpus(limit)}", hint="choose a larger cluster"
        )
    p = np.where(allowed, source.size_p, 0.0)
    p = p / p.sum()
    shared = rng.choice(source.sizes, size=alike.size, p=p)
    own = rng.choice(source.sizes, size=burst_of.size, p=p)
    return np.where(alike[burst_of], shared[burst_of], own)


def burst_scores(burst_of: Ints, alike: Flags, rng: np.random.Generator) -> Floats:
    """Standard normal numbers, correlated inside a burst whose jobs are alike."""
    own = rng.standard_normal(burst_of.size)
    shared = rng.standard_normal(alike.size)[burst_of]
    mixed = LIKENESS * shared + np.sqrt(1.0 - LIKENESS**2) * own
    scores: Floats = np.where(alike[burst_of], mixed, own)
    return scores


_PHILLY = "calibrated to Microsoft Philly (Jeon et al., ATC'19)"
_HELIOS = "calibrated to SenseTime Helios {} (Hu et al., SC'21)"
_philly = partial(draw, key="philly", tenants=PHILLY_TENANTS)
_venus = partial(draw, key="helios_venus", tenants=VENUS_TENANTS)
_earth = partial(draw, key="helios_earth")
_saturn = partial(draw, key="helios_saturn")
_uranus = partial(draw, key="helios_uranus")
_itp = partial(draw, key="itp")

PHILLY = WorkloadRecipe("philly", _PHILLY, "8x8:v100", _philly).workload()
VENUS = WorkloadRecipe("venus", _HELIOS.format("Venus"), "32x8:v100", _venus).workload()
EARTH = WorkloadRecipe("earth", _HELIOS.format("Earth"), "16x8:v100", _earth).workload()
SATURN = WorkloadRecipe("saturn", _HELIOS.format("Saturn"), "32x8:v100", _saturn).workload()
URANUS = WorkloadRecipe("uranus", _HELIOS.format("Uranus"), "32x8:p100", _uranus).workload()
ITP = WorkloadRecipe(
    "itp", "calibrated to Microsoft ITP (Gu et al., ASPLOS'23)", "8x8:v100", _itp
).workload()


def _week(name: str, drawn: Callable[[DrawSettings], Drawn], jobs: int, load: float) -> Workload:
    """A week of one of Helios' clusters."""
    about, where = f"a week {_HELIOS.format(name)}", name.lower()
    return WorkloadRecipe(f"{where}-syn-week", about, where, drawn, jobs, load).workload()


# Standard workloads: fixed sizes and clusters, so that results can be compared.
PHILLY_160 = WorkloadRecipe(
    "philly-syn-160", f"160 jobs {_PHILLY}", "16x4:v100", _philly, 160, 0.9, 16
).workload()
SATURN_WEEK = _week("Saturn", _saturn, 29_416, 0.854)
URANUS_WEEK = _week("Uranus", _uranus, 13_440, 0.88)
EARTH_WEEK = _week("Earth", _earth, 22_302, 0.87)
SCALE_1M = WorkloadRecipe(
    "scale-1m", f"a million jobs {_HELIOS.format('Saturn')}", "saturn", _saturn, 1_000_000, 0.85
).workload()
