"""Workloads of the league with their clusters, and the policies that play."""

from __future__ import annotations

from typing import NamedTuple

from weft.core.spec.registry import names


class Match(NamedTuple):
    """A workload on a cluster that so few jobs fill; `load` is what the jobs offer to it."""

    workload: str
    cluster: str
    what: str
    jobs: int = 60
    load: float = 2.0


class Entry(NamedTuple):
    """A policy that plays, and what tells it remaining times; empty for the policy's own choice."""

    policy: str
    predictor: str = ""

    @property
    def name(self) -> str:
        """A short name for tables: parameters that only make a run shorter are left out."""
        shown = self.policy if ".py:" in self.policy else self.policy.partition(":")[0]
        return f"{shown}, {self.predictor}" if self.predictor else shown


GPUS_32, GPUS_64 = "4x8:v100", "8x8:v100"
RIGID = "rigid gangs"
MATCHES = (
    Match("venus", GPUS_32, RIGID),
    Match("earth", GPUS_32, RIGID),
    Match("saturn", GPUS_32, RIGID),
    Match("kalos", GPUS_64, "language models: mostly large gangs"),
    Match(
        "pollux", "4x4:t4+2x8:rtx+2x8:a100", "jobs that change size and batch, three kinds", 24, 1.5
    ),
    Match("colocated", "1x4:v100", "jobs of one GPU, which they could share", 40),
    Match("gavel", "1x4:v100+1x4:p100+1x4:k80", "kinds of GPU of different speed", 24, 1.5),
    Match("philly", GPUS_32, RIGID),
    Match("pai", GPUS_32, "rigid gangs and parts of GPUs"),
    Match("uranus", GPUS_32, RIGID),
    Match("itp", GPUS_32, RIGID),
    Match("seren", GPUS_32, "language models: a few large gangs, many small jobs"),
    Match("spot-hp-syn", GPUS_32, RIGID),
    Match("tiresias-60", GPUS_32, RIGID),
    Match("shockwave", GPUS_32, "jobs of measured models, as long as they were recorded"),
    Match("tiny-20", "2x4:v100", "20 jobs, always the same"),
    Match("cassini", GPUS_32, "gangs that talk much"),
    Match("regimes", GPUS_32, "jobs that change their batch as they train"),
    Match("losses", GPUS_32, "exploratory jobs whose loss falls", 40),
    Match("servers", GPUS_32, "jobs of workers and parameter servers", 40),
)
# Searches of real length and rounds of seconds take minutes a workload and gain little here.
SHORTER = {
    "compose": "",  # as fifo
    "pollux": "pollux:generations=8,population=16,interval=600",
    "sia": "sia:interval=300",
    "slaq": "slaq:epoch=600",
    "smd": "smd:interval=300",
}
MORE = (Entry("weft", "history"), Entry("weft", "alike"))


def entries() -> list[Entry]:
    """All policies with their own predictors, and some with others."""
    specs = [SHORTER.get(name, name) for name in names("policy")]
    return [*(Entry(spec) for spec in specs if spec), *MORE]
