"""Jobs, nodes and a cluster as the service tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from weft.service.responses.answers import (
    ClusterAnswer,
    JobAnswer,
    JobList,
    NodeAnswer,
    Nodes,
    Part,
)
from weft.service.responses.job_row import GpuRange, StateWord

NOW = 1_000_000.0


def job(ident: str, state: StateWord = "running", **more: Any) -> JobAnswer:
    gpus: Sequence[int] = more.pop("gpus", ())
    share = more.pop("share", 1.0)
    held = [Part(node="ada", gpus=list(gpus), kind="cpu", share=share)] if gpus else None
    plain = JobAnswer(
        id=ident,
        name=ident,
        tenant="vision",
        user="",
        state=state,
        reason="",
        allocation=held,
        restarts=0,
        attempt=1,
        failures=0,
        submitted=NOW - 300.0,
        started=NOW - 200.0 if gpus else None,
        ended=None,
        gpu_seconds=60.0,
        progress=None,
        batch=None,
        goodput=None,
        speed=None,
        gpus=GpuRange(asked=1, min=1, max=1),
        kinds=[],
        model="",
        preemptible=True,
        priority="normal",
        command=["python", "train.py"],
        saved_step=None,
        notices=[],
    )
    return replace(plain, **more)


QUEUE = [
    job("first", gpus=(0, 1), progress=0.43, batch=256.0, goodput=2345.3, restarts=2),
    job("left", gpus=(2,), share=0.5, progress=0.9, batch=64.0, goodput=12.34),
    job("right", gpus=(2,), share=0.5, progress=0.1, batch=512.0, goodput=12345.6),
    job(
        "a-name-that-is-longer-than-most-1a2b3c4d",
        "pending",
        name="a-name-that-is-longer-than-most",
        reason="asks for 4 GPUs, 1 is free; first and right are in front and will be for long",
    ),
    job("broken", "failed", reason="rank 0 ended with exit code 3: no data", ended=NOW - 50.0),
]
PAGE = JobList(jobs=QUEUE, next=None)
CLUSTER = ClusterAnswer(
    now=NOW,
    policy="gandiva",
    engine="local",
    trouble="",
    nodes=1,
    gpus=4,
    held=3.0,
    kinds={},
    jobs={},
    waiting=1,
    running=3,
    goodput=0.0,
    decisions=0,
    seq=0,
    warnings=[],
)
NODE = NodeAnswer(id="ada", state="up", kind="cpu", gpus=4, held=3, cpus=4.0, mem_gb=16.0, rack="")
NODES = Nodes(nodes=[NODE])
