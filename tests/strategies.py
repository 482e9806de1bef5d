"""Hypothesis strategies for jobs, clusters and traces."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth

KINDS = ("t4", "v100", "a100")
MODELS = ("", "vgg16", "resnet50", "bert")


@st.composite
def clusters(draw: Any, max_nodes: int = 6, max_kinds: int = 2) -> Cluster:
    """One or more kinds, a few nodes of 1 to 8 GPUs each."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=max_kinds, unique=True))
    parts = [
        f"{draw(st.integers(1, max_nodes))}x{draw(st.sampled_from((1, 2, 4, 8)))}:{kind}"
        for kind in kinds
    ]
    return parse_cluster("+".join(parts))


@st.composite
def gangs_on_nodes(draw: Any, cluster: Cluster, kinds: tuple[str, ...]) -> Demand:
    """A gang that asks for a number of nodes, and fits."""
    kind = draw(st.sampled_from(kinds or cluster.kinds))
    sizes = sorted((node.gpus for node in cluster.nodes if node.kind == kind), reverse=True)
    nodes = draw(st.integers(1, min(len(sizes), 3)))
    return Demand(nodes * draw(st.integers(1, sizes[nodes - 1])), kinds=kinds, nodes=nodes)


@st.composite
def traces(draw: Any, cluster: Cluster, max_jobs: int = 25, *, shares: bool = True) -> Trace:
    """Jobs that fit `cluster`: gangs, parts of a GPU, kind constraints, ties, failures."""
    jobs, at = [], 0.0
    for i in range(draw(st.integers(1, max_jobs))):
        at += draw(st.sampled_from((0.0, 0.0, 1.0, 30.0, 400.0)))
        length = draw(st.sampled_from((1.0, 20.0, 60.0, 900.0, 5000.0)))
        kinds = draw(st.sampled_from(((), (), (cluster.kinds[0],), cluster.kinds)))
        room = max(cluster.gpus_by_kind[kind] for kind in kinds or cluster.kinds)
        if shares and draw(st.booleans()) and draw(st.booleans()):
            demand = Demand(1, kinds=kinds, share=draw(st.sampled_from((0.25, 0.5, 0.6))))
        elif draw(st.integers(0, 5)) == 0:
            demand = draw(gangs_on_nodes(cluster, kinds))
        else:
            demand = Demand(draw(st.integers(1, min(room, 16))), kinds=kinds)
        failures = (length / 2,) if draw(st.integers(0, 9)) == 0 else ()
        job = Job(
            JobId(f"j{i}"),
            at,
            demand,
            model=draw(st.sampled_from(MODELS)),
            hints={"duration_s": length},
        )
        jobs.append((job, Truth(length, failures)))
    return Trace("drawn", tuple(jobs))
