"""Synthetic mix of firm services and preemptible gangs, on the node table of Alibaba's spot trace.

Firm services live for days to months and hold 65 % of each kind throughout; spot gangs follow the
size and length laws of Philly and offer the rest of the load. As services outlive the trace, the
load is meant inside the window of arrivals, not as the sum of all recorded work.
"""

from __future__ import annotations

import numpy as np

from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Tier
from weft.traces.draft import demand
from weft.traces.draw.arrivals import poisson
from weft.traces.draw.params import Floats
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe
from weft.traces.formats.openb import SPOT_CLUSTER
from weft.traces.synthetic.calibrated import draw as draw_family

FIRM = 0.65
DAY = 86_400.0
# Lifetimes of services: lognormal, between a day and half a year (our choice).
LIFE_MEDIAN, LIFE_SIGMA, LIFE = 10 * DAY, 1.2, (DAY, 180 * DAY)
SERVICE_GPUS = ((1, 0.7), (2, 0.15), (4, 0.1), (8, 0.05))


def draw(want: DrawSettings) -> Drawn:
    """Spot jobs fix the length of the trace; services hold their part of every kind that long."""
    serving, placing, kinding = want.streams(3)
    rest = max(want.load - FIRM, 0.05)
    slots = _slots(want, serving)
    spots = max(1, want.jobs - len(slots))
    spot = draw_family(
        DrawSettings(want.seed, spots, rest, want.gpus, min(want.limit, 32)), key="philly"
    )
    span = max(float(spot.when.max()), 1.0)
    services = [s for slot in slots for s in _renew(slot, span, serving)]
    capacity = _capacity(want)
    kinds = _spot_kinds(spots, capacity, kinding)
    first = poisson(max(len(slots), 2), min(span, 3600.0), placing)
    starts = [start or first[i % first.size] for i, (_, start, _) in enumerate(services)]
    spot_demands = [
        demand(d.gpus, 1, (kind,) if kind else ())
        for d, kind in zip(spot.demands, kinds, strict=True)
    ]
    drawn = Drawn(
        when=np.concatenate((np.array(starts), spot.when)),
        lengths=np.concatenate((np.array([life for _, _, life in services]), spot.lengths)),
        demands=[*(ask for ask, _, _ in services), *spot_demands],
        states=[*(["completed"] * len(services)), *spot.states],
        users=[*([""] * len(services)), *spot.users],
        tiers=[Tier.GUARANTEED] * len(services) + [Tier.OPPORTUNISTIC] * spots,
    )
    return _first(drawn, want.jobs)


def _first(drawn: Drawn, jobs: int) -> Drawn:
    """The first `jobs` by arrival: how many services follow each other is known only now."""
    rows = np.argsort(drawn.when, kind="stable")[:jobs].tolist()
    return Drawn(
        when=drawn.when[rows],
        lengths=drawn.lengths[rows],
        demands=[drawn.demands[i] for i in rows],
        states=[drawn.states[i] for i in rows],
        users=[drawn.users[i] for i in rows],
        tiers=[drawn.tiers[i] for i in rows],
    )


def _capacity(want: DrawSettings) -> dict[str, int]:
    """GPUs of each kind; on a cluster of other kinds no job names one."""
    known = parse_cluster(SPOT_CLUSTER).gpus_by_kind
    own = want.kinds == tuple(known) and want.gpus == sum(known.values())
    return known if own else {"": want.gpus}


def _slots(want: DrawSettings, rng: np.random.Generator) -> list[Demand]:
    """Demands of the services that hold the firm part of each kind."""
    sizes, p = zip(*SERVICE_GPUS, strict=True)
    slots: list[Demand] = []
    for kind, gpus in _capacity(want).items():
        single = kind == "a10"
        held = 0
        while held < FIRM * gpus:
            size = 1 if single else int(rng.choice(sizes, p=p))
            slots.append(demand(min(size, gpus, want.limit), 1, (kind,) if kind else ()))
            held += size
    return slots


def _renew(
    slot: Demand, span: float, rng: np.random.Generator
) -> list[tuple[Demand, float, float]]:
    """Services one after another on the same devices, until the trace ends."""
    lives: list[tuple[Demand, float, float]] = []
    start = 0.0
    while start < span:
        life = float(np.clip(LIFE_MEDIAN * np.exp(LIFE_SIGMA * rng.standard_normal()), *LIFE))
        lives.append((slot, start, round(life, 3)))
        start += life
    return lives


def _spot_kinds(count: int, capacity: dict[str, int], rng: np.random.Generator) -> list[str]:
    weight: Floats = np.array(list(capacity.values()), dtype=np.float64)
    picked = rng.choice(len(capacity), size=count, p=weight / weight.sum())
    names = list(capacity)
    return [names[i] for i in picked.tolist()]


SPOT_HP = WorkloadRecipe(
    "spot-hp-syn",
    "firm services and spot gangs on the nodes of Alibaba spot-gpu 2026 (GFS, ASPLOS'26)",
    SPOT_CLUSTER,
    draw,
    50_000,
    0.95,
).workload()
