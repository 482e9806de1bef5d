"""Jobs that talk: workloads whose jobs say what their workers send.

`philly-net` gives the sizes and lengths of Philly the architectures and shares of PAI (Wang et al.,
IISWC'19): jobs of one GPU do not communicate; of the others seven in ten have parameter servers, as
29 of the 41 % of jobs above one GPU there; weights and gradients take 62 % of an iteration on
average over 25 Gbit/s; nine models in ten are below 10 GB, a few reach 300. Spreads are ours.

`cassini` has the models of CASSINI (Rajasekaran et al., NSDI'24) on its 24 servers of one GPU, with
phases as we read them from the paper's descriptions: iteration times and rates are ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.core.knowledge.traffic import Architecture, Pattern, Traffic, TrafficPhase
from weft.core.model.job import Demand
from weft.traces.draw.arrivals import PHILLY_TENANTS, Ints, stretch
from weft.traces.draw.params import Floats
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe
from weft.traces.synthetic.calibrated import draw

SERVERS_PART = 29.0 / 41.0  # of jobs above one GPU
SHARE = (3.1, 1.9)  # a beta law of mean 0.62
WEIGHTS_GB = (0.5, 2.34, 300.0)  # a log-normal law: median, spread so that 90 % are below 10, most
ETHERNET_GBPS, PCIE_GBPS = 25.0, 80.0  # over which the shares hold: between nodes, and inside one
LOCAL_GPUS = 8


def draw_traffic(gpus: Ints, rng: np.random.Generator) -> list[Traffic | None]:
    """Draw the traffic of jobs of these sizes; None for those that do not communicate."""
    n = len(gpus)
    servers, share = rng.random(n) < SERVERS_PART, rng.beta(*SHARE, n)
    median, spread, most = WEIGHTS_GB
    weights = np.minimum(median * np.exp(spread * rng.standard_normal(n)), most)
    columns = zip(gpus.tolist(), servers.tolist(), share.tolist(), weights.tolist(), strict=True)
    return [_traffic(*row) for row in columns]


def _traffic(gpus: int, servers: bool, share: float, weights_gb: float) -> Traffic | None:
    if gpus < 2:
        return None
    if servers:
        built, pattern, gbit = Architecture.SERVERS, Pattern.STAR, 8.0 * weights_gb
    else:
        built = Architecture.LOCAL if gpus <= LOCAL_GPUS else Architecture.ALL_REDUCE
        pattern, gbit = Pattern.RING, 16.0 * weights_gb * (gpus - 1) / gpus
    gbps = PCIE_GBPS if built is Architecture.LOCAL else ETHERNET_GBPS
    share, gbit = round(share, 4), round(gbit, 4)
    return Traffic(round(gbit / gbps / share, 6), share, gbit, pattern, architecture=built)


def draw_philly(want: DrawSettings) -> Drawn:
    """Philly's jobs, and what they send."""
    drawn = draw(want, "philly", PHILLY_TENANTS)
    gpus = np.array([ask.gpus for ask in drawn.demands])
    drawn.traffics = draw_traffic(gpus, want.streams(6)[5])
    return drawn


# Milliseconds of an iteration, and its phases: start, length, Gbit/s. Data parallel models send
# gradients at the end; pipelines send activations all along; hybrids do both.
MODELS: Mapping[str, tuple[float, tuple[tuple[float, float, float], ...], Pattern]] = {
    "vgg11": (220.0, ((110.0, 110.0, 42.0),), Pattern.RING),
    "vgg16": (250.0, ((130.0, 120.0, 42.0),), Pattern.RING),
    "vgg19": (280.0, ((150.0, 130.0, 42.0),), Pattern.RING),
    "resnet50": (160.0, ((110.0, 50.0, 28.0),), Pattern.RING),
    "wideresnet101": (300.0, ((190.0, 110.0, 38.0),), Pattern.RING),
    "bert": (240.0, ((150.0, 90.0, 40.0),), Pattern.RING),
    "roberta": (250.0, ((160.0, 90.0, 40.0),), Pattern.RING),
    "camembert": (250.0, ((150.0, 100.0, 40.0),), Pattern.RING),
    "xlm": (280.0, ((160.0, 120.0, 42.0),), Pattern.RING),
    "gpt1": (200.0, ((110.0, 90.0, 40.0),), Pattern.RING),
    "gpt2": (400.0, ((40.0, 30.0, 12.0), (140.0, 30.0, 12.0), (240.0, 160.0, 44.0)), Pattern.CHAIN),
    "gpt3": (600.0, ((60.0, 60.0, 20.0), (240.0, 60.0, 20.0), (380.0, 220.0, 46.0)), Pattern.CHAIN),
    "dlrm": (200.0, ((20.0, 50.0, 44.0), (130.0, 70.0, 44.0)), Pattern.ALL_TO_ALL),
}
WORKERS = (2, 3, 4, 6, 8, 12)


def describe_traffic(model: str) -> Traffic:
    """Describe the traffic of one iteration of a model of CASSINI's."""
    iteration_ms, phases, pattern = MODELS[model]
    shape = tuple(TrafficPhase(start / 1e3, length / 1e3, gbps) for start, length, gbps in phases)
    sending = sum(phase.seconds for phase in shape)
    gbit = sum(phase.seconds * phase.gbps for phase in shape)
    share = round(sending * 1e3 / iteration_ms, 6)
    return Traffic(iteration_ms / 1e3, share, gbit, pattern, shape)


def draw_cassini(want: DrawSettings) -> Drawn:
    """Models in equal parts, a few workers each, for minutes to hours."""
    models, sizing, lengths, arrivals = want.streams(4)
    names = models.choice(list(MODELS), want.jobs).tolist()
    allowed = [size for size in WORKERS if size <= want.limit] or [1]
    gpus: Ints = sizing.choice(allowed, want.jobs)
    drawn: Floats = np.exp(lengths.uniform(np.log(600.0), np.log(7200.0), want.jobs))
    length: Floats = drawn.round(3)
    span = want.span(gpus * length)
    return Drawn(
        when=stretch(np.sort(arrivals.uniform(0.0, span, want.jobs)), span),
        lengths=length,
        demands=[Demand(size) for size in gpus.tolist()],
        models=names,
        traffics=[describe_traffic(name) for name in names],
    )


PHILLY_NET = WorkloadRecipe(
    "philly-net",
    "Philly's jobs with the communication of PAI's (Jeon et al., ATC'19; Wang et al., IISWC'19)",
    "8x8:v100@dgx-1v/nic=25/rack=4:100",
    draw_philly,
).workload()
CASSINI = WorkloadRecipe(
    "cassini",
    "CASSINI's models and their phases (Rajasekaran et al., NSDI'24)",
    "24x1:a100/nic=50/rack=6:150",
    draw_cassini,
    200,
).workload()
