"""A small trace under every policy: who started when, and the numbers people quote.

`WEFT_UPDATE_GOLDEN=1 pytest tests/golden` rewrites the file, on purpose only.
"""

from __future__ import annotations

import os
from pathlib import Path

import weft
from weft.core.spec.registry import names
from weft.sim.result import Outcome, Result

GOLDEN = Path(__file__).parent / "tiny.txt"
VARIANTS = (
    "fifo:backfill=true",
    "las:by=time,thresholds=600/3600",
    "tiresias:knob=2",
    "tiresias:priority=gittins",
    "gavel:objective=makespan",
)
# Searches and rounds of real length are no use on an hour of toy jobs.
INSTEAD = {"pollux": "pollux:generations=10,population=20", "gavel": "gavel:round=60"}

METRICS = ("avg_jct_h", "p99_jct_h", "makespan_h", "avg_queue_h", "utilization", "worst_ftf")


def test_every_policy_still_does_what_it_did_on_the_tiny_trace() -> None:
    specs = sorted([*(INSTEAD.get(name, name) for name in names("policy")), *VARIANTS])
    result = weft.compare("tiny-20", specs, processes=1)

    text = "tiny-20 on " + result.cluster + "\n" + "".join(_page(s, result) for s in specs)

    if os.environ.get("WEFT_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def _page(spec: str, result: Result) -> str:
    outcome = result.outcomes[spec][0]
    numbers = "  ".join(f"{name} {outcome.metrics[name]:.6f}" for name in METRICS)
    head = f"\n{spec}  ({outcome.predictor})\n  {numbers}\n"
    return head + "".join(f"  {line}\n" for line in _starts(outcome))


def _starts(outcome: Outcome) -> list[str]:
    jobs = outcome.per_job
    rows = zip(jobs.id, jobs.start_s, jobs.end_s, jobs.restarts, strict=True)
    return [f"{n:<12} {s:>9.1f} {e:>9.1f} restarts {r:.0f}" for n, s, e, r in rows]
