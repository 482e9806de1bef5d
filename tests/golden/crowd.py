"""Two crowds in which rules decide, and what is tried on them: every policy, option and wrapper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np

import weft
from tests.cheap import CHEAP
from weft.core.errors import WeftError
from weft.core.knowledge.traffic import Traffic
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import BatchRange, Demand, Job, JobId, NodeId, Tier
from weft.core.model.trace import Trace, Truth
from weft.core.spec.registry import build, names
from weft.sim.loans import Loans, RecordedDemand
from weft_papers.published import CLASSES, build_named, find_authors_class

GOLDEN = Path(__file__).parent / "crowd.txt"
GROUNDS = {"kinds": "2x8:v100@dgx-1v/nic=25/rack=1:25+2x4:t4", "sizes": "3x4:v100"}
LENT = tuple(
    replace(node, id=NodeId(f"lent-{i}"), loaned=True)
    for i, node in enumerate(parse_cluster("3x4:v100").nodes)
)
LOANS = {
    "kinds": Loans(),
    "sizes": Loans(
        LENT, RecordedDemand(((0.0, 1), (900.0, 3), (1800.0, 0), (3600.0, 2))), headroom=0.0
    ),
}
JOBS = 36
# Numbers decide as well: those at which something else happens.
NUMBERS = (
    "allox:alpha=0.3",
    "gandiva_fair:quantum=120",
    "gavel:round=600,objective=hierarchical,in_turn=vision,shares=vision=1/speech=2",
    "gavel:round=600,reset=1800",
    "las:by=time,thresholds=600/3600",
    "lyra:resize_s=60",
    "shockwave:window=2,round=3600,shorter=2",
    "themis:f=0",
    "themis:f=0,lease=300,spread=1.5",
    "tiresias:knob=2",
)
TOGETHER = (
    "cassini:score=mean|fifo:backfill=true",
    "cassini|fifo:backfill=true",
    "compose:order=allox,place=packed,admit=worst-off",
    "compose:order=ftf,size=optimus,admit=in-turn",
    "compose:order=gavel",
    "compose:order=gittins,size=sia",
    "compose:order=las,place=spread",
    "compose:order=las,size=equal",
    "compose:order=muri,share=muri,place=consolidated",
    "compose:order=none,size=least,place=whole-nodes",
    "compose:order=none,size=slaq,place=beside,every=120",
    "compose:order=priority,admit=backfill,place=consolidated",
    "compose:order=sjf,place=gaps,share=lucid",
    "compose:order=srsf,place=mapa",
    "compose:order=themis,place=packed",
    "defrag:min_run_s=0,margin=0|srtf",
    "easy:patience_s=0|fifo",
    "easy:patience_s=0|srtf",
    "fair:bound=1.2,of=tenants|srtf",
    "fair:bound=1.2|srtf",
    "firm|srtf",
    "gfs|fifo:backfill=true",
    "gfs|sia",
    "gfs|srtf",
    "hived:cells=vision@v100.node=1/speech@v100.gpu=2|las",
    "lend:own=vision=4/speech=8|las",
    "priority|las",
    "quota:limits=vision=8|srtf",
    "quota:weights=vision=2/speech=1|fifo",
    "spare|fifo:backfill=true",
    "steady:min_run_s=300|srtf",
    "steady|las",
)


def draw(ground: str) -> Trace:
    """Jobs within an hour and a half: rigid ones on two kinds, or elastic ones on one."""
    rng = np.random.default_rng(len(ground))
    jobs, at = [], 0.0
    for i in range(JOBS):
        at += float(rng.choice([0.0, 30.0, 240.0]))
        gpus, dice = int(rng.choice([1, 1, 2, 4, 8])), rng.random()
        if ground == "sizes":
            demand = Demand(min(gpus, 4), min=1 if dice < 0.6 else min(gpus, 4), max=8)
        elif dice < 0.2:
            demand = Demand(1, share=float(rng.choice([0.25, 0.5])))
        else:
            demand = Demand(gpus, kinds=("v100",) if dice < 0.3 else ())
        stages = [float(part) for part in rng.choice([0.02, 0.1, 0.3], 3)]
        hints = {f"stage{n}_s": part for n, part in enumerate(stages)}
        hints |= {
            "iteration_s": stages[0] + stages[1] + stages[2],
            "gpu_util": float(rng.choice([20.0, 60.0, 95.0])),
        }
        hints |= {"gmem_util": 30.0, "gmem_mib": float(rng.choice([2000.0, 9000.0]))}
        job = Job(
            JobId(f"j{i}"),
            at,
            demand,
            tenant=str(rng.choice(["vision", "speech"])),
            user=str(rng.choice(["ann", "bob", "eve"])),
            model=str(rng.choice(["resnet50", "bert", "vgg16"])),
            batch=BatchRange(32, 1024, 256) if ground == "sizes" else None,
            priority=float(rng.integers(3)),
            deadline=at + 7200.0 if dice > 0.8 else None,
            tier=Tier.OPPORTUNISTIC if rng.random() < 0.2 else Tier.GUARANTEED,
            hints=hints if demand.share == 1.0 else {},
            preemptible=bool(rng.random() < 0.9),
            app=str(rng.choice(["", "", "sweep"])),
            traffic=Traffic(0.5, 0.4, 4.0) if gpus > 1 and not i % 3 else None,
        )
        jobs.append((job, Truth(float(np.ceil(rng.lognormal(6.5, 1.2))))))
    return Trace(ground, tuple(jobs))


def describe(spec: str, ground: str, folder: Path) -> str:
    """Mean completion time and makespan in hours, and a fingerprint of what it says and did."""
    log, policy = folder / "events", find_authors_class(spec)
    result = weft.simulate(
        draw(ground), policy, GROUNDS[ground], restart_cost=20.0, loans=LOANS[ground], events=log
    )
    numbers = result.outcomes[policy][0].metrics
    events = [json.loads(line) for line in log.read_text().splitlines()]
    about_it = 1 + len(parse_cluster(GROUNDS[ground]).nodes)  # the policy and its machines
    kept = [e | {"at": round(e["at"], 1)} for e in events[about_it:] if e["event"] != "Reported"]
    for event in kept:
        event.pop("facts", None)  # the numbers of reasons, which are there in words
    about = build_named(spec).about
    declared = [about.starves, about.idles, str(about.needs), str(about.controls), about.every]
    mark = sha256(json.dumps([declared, kept], sort_keys=True).encode()).hexdigest()[:12]
    return f"{numbers['avg_jct_h']:.4f} {numbers['makespan_h']:.4f} {mark}"


def read_golden() -> dict[str, str]:
    """What is known, by `SPEC in GROUND`."""
    return dict(text.split("  ", 1) for text in GOLDEN.read_text().splitlines())


def every_spec() -> list[str]:
    """Every policy, with every other choice of its options that are choices, and those above."""
    specs = [spec for name in names("policy") for spec in _variants(CHEAP.get(name, name))]
    # Which point in the middle of the best ones Gavel's authors' way takes is up to the processor.
    theirs = [f"authors/{CHEAP.get(name, name)}" for name in CLASSES if name != "gavel"]
    return sorted({*specs, *NUMBERS, *TOGETHER, *theirs})


def _variants(spec: str) -> Iterator[str]:
    yield spec
    policy = build("policy", spec)
    hints = get_type_hints(type(policy))
    for field in fields(policy):
        now, kind = getattr(policy, field.name), hints[field.name]
        others: tuple[object, ...] = ()
        if kind is bool:
            others = (not now,)
        elif get_origin(kind) is Literal:
            others = tuple(arg for arg in get_args(kind) if arg != now)
        for other in others:
            text = str(other).lower() if kind is bool else str(other)
            changed = f"{spec}{',' if ':' in spec else ':'}{field.name}={text}"
            try:
                build("policy", changed)
            except WeftError:  # a choice that needs another beside it
                continue
            yield changed
