"""Synthetic workloads calibrated to public traces: size, state, length, arrival, user.

Each aspect draws from its own child stream of the seed, so that changing one option does not
reshuffle the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.core.cluster import parse_cluster
from weft.core.errors import InvalidConfig
from weft.core.model import Job, JobId
from weft.core.trace import LoadReport, Trace, Truth
from weft.traces.arrivals import Ints, bursts, times
from weft.traces.draft import Workload, demand
from weft.traces.durations import Lengths
from weft.traces.options import Request
from weft.traces.params import Family, Floats, family
from weft.traces.users import PHILLY_TENANTS, VENUS_TENANTS, draw_users, tenants_of

Flags = npt.NDArray[np.bool_]

LOAD = 0.8
# Jobs of a burst mostly resemble each other: how often, and how closely (our choice).
ALIKE, LIKENESS = 0.8, 0.8


@dataclass(frozen=True, slots=True)
class Recipe:
    """A workload of one family: how many jobs, on which cluster, at which load."""

    name: str
    about: str
    key: str
    cluster: str
    jobs: int = 1_000
    load: float = LOAD
    max_gpus: int | None = None
    tenants: Sequence[int] = ()

    def workload(self) -> Workload:
        """The registered object."""
        return Workload(self.name, self.about, self.cluster, self.generate)

    def generate(self, request: Request) -> Trace:
        """Draw the jobs that `request` asks for."""
        want = settle(request, self)
        drawn = draw(family(self.key), want)
        pairs = assemble(self.name, drawn, tenants=len(self.tenants))
        return Trace(self.name, pairs, self.cluster, report=LoadReport(len(pairs), len(pairs)))


@dataclass(frozen=True, slots=True)
class Want:
    """A request with every default filled in; `limit` is the largest job."""

    seed: int
    jobs: int
    load: float
    gpus: int
    limit: int
    kinds: tuple[str, ...] = ()
    tenants: Sequence[int] = ()


@dataclass(slots=True)
class Drawn:
    """Jobs as columns, in order of arrival."""

    when: Floats
    sizes: Floats
    lengths: Floats
    states: list[str]
    users: Ints
    tenants: Ints


def settle(request: Request, recipe: Recipe) -> Want:
    """Fill in what the request leaves open."""
    cluster = parse_cluster(recipe.cluster)
    gpus = request.gpus or cluster.gpus
    limits = [gpus, request.max_gpus, recipe.max_gpus]
    return Want(
        seed=request.seed,
        jobs=request.jobs or recipe.jobs,
        load=request.load or recipe.load,
        gpus=gpus,
        limit=min(limit for limit in limits if limit is not None),
        kinds=request.kinds if request.gpus else cluster.kinds,
        tenants=recipe.tenants,
    )


def streams(seed: int, count: int) -> list[np.random.Generator]:
    """Independent child streams of `seed`."""
    return np.random.Generator(np.random.PCG64(seed)).spawn(count)


def draw(source: Family, want: Want) -> Drawn:
    """Draw sizes, states and lengths, then space the arrivals so that they offer the load."""
    arrivals, sizing, states, lengths, people = streams(want.seed, 5)
    burst_of = bursts(want.jobs, source.arrival.burst, arrivals)
    alike = sizing.random(int(burst_of[-1]) + 1) < ALIKE
    sizes = draw_sizes(source, want.limit, burst_of, alike, sizing)
    state = states.choice(len(source.states), size=want.jobs, p=source.state_p)
    score = burst_scores(burst_of, alike, lengths)
    seconds = Lengths(source).draw(score, sizes, source.state_offset[state])
    seconds = np.round(seconds, 3)
    user = draw_users(alike.size, source.users, source.user_sigma, people)
    homes = tenants_of(source.users, want.tenants or (1,), people)
    return Drawn(
        when=times(source.arrival, burst_of, span(sizes * seconds, want), arrivals),
        sizes=sizes,
        lengths=seconds,
        states=[source.states[i] for i in state],
        users=user[burst_of],
        tenants=homes[user][burst_of],
    )


def span(work: Floats, want: Want) -> float:
    """Seconds of arrivals over which `work` GPU-seconds offer the wanted load."""
    return float(work.sum()) / (want.load * want.gpus)


def draw_sizes(
    source: Family, limit: int, burst_of: Ints, alike: Flags, rng: np.random.Generator
) -> Floats:
    """GPUs of each job; sizes above `limit` are taken out of the distribution."""
    allowed = source.sizes <= limit
    if not allowed.any():
        raise InvalidConfig(
            f"no job of this workload fits {limit} GPUs", hint="choose a larger cluster"
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


def assemble(name: str, drawn: Drawn, tenants: int = 0) -> tuple[tuple[Job, Truth], ...]:
    """Jobs and truths from columns, sorted by arrival."""
    order = np.argsort(drawn.when, kind="stable")
    when = np.round(drawn.when[order], 3).tolist()
    sizes, lengths = drawn.sizes[order].tolist(), drawn.lengths[order].tolist()
    users, homes = drawn.users[order].tolist(), drawn.tenants[order].tolist()
    user_names = {i: f"u{i:03d}" for i in set(users)}
    home_names = {i: f"t{i:02d}" if tenants else "" for i in set(homes)}
    width = len(str(len(when) - 1))
    return tuple(
        (
            Job(
                JobId(f"{name}-{i:0{width}d}"),
                when[i],
                demand(sizes[i]),
                home_names[homes[i]],
                user_names[users[i]],
            ),
            Truth(lengths[i], (), drawn.states[row]),
        )
        for i, row in enumerate(order.tolist())
    )


_PHILLY = "calibrated to Microsoft Philly (Jeon et al., ATC'19)"
_HELIOS = "calibrated to SenseTime Helios {} (Hu et al., SC'21)"
_RECIPES = {
    r.name: r
    for r in (
        Recipe("philly", _PHILLY, "philly", "8x8:v100", tenants=PHILLY_TENANTS),
        Recipe(
            "venus", _HELIOS.format("Venus"), "helios_venus", "32x8:v100", tenants=VENUS_TENANTS
        ),
        Recipe("earth", _HELIOS.format("Earth"), "helios_earth", "16x8:v100"),
        Recipe("saturn", _HELIOS.format("Saturn"), "helios_saturn", "32x8:v100"),
        Recipe("uranus", _HELIOS.format("Uranus"), "helios_uranus", "32x8:p100"),
        Recipe("itp", "calibrated to Microsoft ITP (Gu et al., ASPLOS'23)", "itp", "8x8:v100"),
    )
}
PHILLY = _RECIPES["philly"].workload()
VENUS = _RECIPES["venus"].workload()
EARTH = _RECIPES["earth"].workload()
SATURN = _RECIPES["saturn"].workload()
URANUS = _RECIPES["uranus"].workload()
ITP = _RECIPES["itp"].workload()
