"""Jobs of workers and parameter servers with a worth in time, and jobs whose loss is followed.

Both are drawn by laws of ours, because the papers publish none: sizes of tasks are those of the
public Optimus scheduler, classes of urgency those of the utility literature (a tenth does not
mind, a third is critical), and losses follow the published forms with most of a job's time spent
on its last few per cent.
"""

from __future__ import annotations

import numpy as np

from weft.core.model.job import Demand
from weft.core.model.trace import Detail
from weft.formulas.training.convergence import Curve
from weft.traces.draw.arrivals import poisson
from weft.traces.draw.params import Floats
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe

GBIT_PER_MB = 8e-3
# Sizes asked for in workers, and how likely each is.
WORKERS = {2: 0.4, 4: 0.4, 8: 0.2}
INDIFFERENT, CRITICAL = 0.10, 0.65  # below the first delay is free, above the second it is all
ASKED = 8  # GPUs that a job whose loss is followed asks for
LARGEST = 64


def draw_servers(want: DrawSettings) -> Drawn:
    """Three or four cores a server, two a worker, links of 1 to 3 Gb/s, lengths around 20 min."""
    arrivals, sizing, lengthening, layering, valuing = want.streams(5)
    sizes = np.array([w for w in WORKERS if w <= max(want.limit, 2)])
    odds = np.array([WORKERS[int(w)] for w in sizes])
    workers = np.minimum(sizing.choice(sizes, want.jobs, p=odds / odds.sum()), want.limit)
    lengths = _lengths(1200.0, 0.9, want, lengthening)
    hints = [
        {**_tasks(int(w), sizing), **_layers(int(w), float(s), layering), **_worth(s, valuing)}
        for w, s in zip(workers.tolist(), lengths.tolist(), strict=True)
    ]
    return Drawn(
        when=poisson(want.jobs, want.span(workers * lengths), arrivals),
        lengths=lengths,
        demands=[Demand(int(w), min=1, max=min(2 * int(w), want.limit)) for w in workers.tolist()],
        hints=hints,
    )


def draw_losses(want: DrawSettings) -> Drawn:
    """Exploratory jobs: 100 to 400 iterations of losses that fall fast at first."""
    arrivals, lengthening, curving = want.streams(3)
    asked = min(ASKED, want.limit)
    lengths = _lengths(300.0, 0.6, want, lengthening)
    return Drawn(
        when=poisson(want.jobs, want.span(asked * lengths), arrivals),
        lengths=lengths,
        demands=[Demand(asked, min=1, max=min(LARGEST, want.limit))] * want.jobs,
        curves=[_curve(curving) for _ in range(want.jobs)],
    )


def _lengths(median: float, sigma: float, want: DrawSettings, rng: np.random.Generator) -> Floats:
    drawn: Floats = median * np.exp(sigma * rng.standard_normal(want.jobs))
    return drawn.round(3)


def _tasks(workers: int, rng: np.random.Generator) -> dict[str, float]:
    server, worker = float(rng.choice([3.0, 4.0])), 2.0
    mem, gbps = float(rng.choice([9.0, 10.0])), float(rng.choice([1.0, 2.0, 3.0]))
    servers = int(rng.integers(max(workers // 2, 1), workers + 1))
    return {
        "server_cpus": server,
        "server_mem_gb": mem,
        "server_gbps": gbps,
        "worker_cpus": worker,
        "worker_mem_gb": float(rng.choice([8.0, 10.0])),
        "worker_gbps": 0.5,
        "servers": float(servers),
        "most_servers": float(3 * workers),
        # The user's limit: about twice of everything that was asked for.
        "most_gpus": 2.0 * workers,
        "most_cpus": 2.0 * (workers * worker + servers * server),
        "most_mem_gb": 2.0 * 10.0 * (workers + servers),
        "most_gbps": 2.0 * (0.5 * workers + gbps * servers),
        "sync": float(rng.random() < 0.7),
    }


def _layers(workers: int, length: float, rng: np.random.Generator) -> dict[str, float]:
    """A network whose training takes about `length` seconds on what was asked for."""
    count = int(rng.integers(4, 11))
    forward, backward = float(rng.uniform(0.002, 0.02)), float(rng.uniform(0.05, 0.4))
    mb = float(np.exp(rng.normal(np.log(120.0), 0.7)))
    parts = rng.dirichlet(np.ones(count), 3)
    named: dict[str, float] = {}
    for i, (f, b, g) in enumerate(parts.T.tolist()):
        named[f"layer{i}_forward_s"] = f * forward
        named[f"layer{i}_backward_s"] = b * backward
        named[f"layer{i}_mb"] = g * mb
    batch = float(rng.choice([16, 32, 64]))
    # Half of the traffic hidden, a server for each worker, links of 2 Gb/s: about right.
    step = batch * forward + backward + 0.5 * 2.0 * mb * GBIT_PER_MB / 2.0
    steps = max(length / step, 1.0)
    return {**named, "batch": batch * workers, "samples": steps * batch * workers}


def _worth(length: float, rng: np.random.Generator) -> dict[str, float]:
    target = length * float(rng.uniform(0.5, 3.0))
    dice, steep = float(rng.random()), 0.0
    if dice >= CRITICAL:
        steep = float(rng.uniform(8.0, 20.0))
    elif dice >= INDIFFERENT:
        steep = float(rng.uniform(1.0, 4.0))
    return {"worth": float(rng.uniform(1.0, 100.0)), "haste": steep / target, "target_s": target}


def _curve(rng: np.random.Generator) -> Curve:
    """Half of the jobs converge sublinearly and half linearly; scales differ by a hundred."""
    count, scale = float(rng.integers(100, 401)), float(10.0 ** rng.uniform(-1.0, 1.0))
    seed, floor = int(rng.integers(2**31)), float(rng.uniform(0.02, 0.4)) * scale
    if rng.random() < 0.5:
        c = 1.0 / scale
        b, a = float(rng.uniform(20.0, 80.0)) / count, float(rng.uniform(0.0, 200.0)) / count**2
        return Curve("sublinear", (a * c, b * c, c, floor), count, 0.01, seed)
    mu = float(np.exp(-rng.uniform(6.0, 14.0) / count))
    return Curve("linear", (mu, float(np.log(scale) / -np.log(mu)), floor), count, 0.01, seed)


SERVERS = WorkloadRecipe(
    "servers",
    "jobs of workers and parameter servers, each with a worth that falls with time (for SMD)",
    "16x4:v100",
    draw_servers,
    200,
    1.0,
    detail=Detail.LAYERS,
).workload()
LOSSES = WorkloadRecipe(
    "losses",
    "exploratory jobs whose falling loss is followed (for SLAQ, Zhang et al., SoCC'17)",
    "16x8:v100",
    draw_losses,
    160,
    0.9,
    detail=Detail.LOSSES,
).workload()
