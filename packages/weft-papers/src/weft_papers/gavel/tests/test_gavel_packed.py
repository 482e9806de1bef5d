"""Gavel's space sharing (OSDI 2020, section 3.1): pairs run at the speeds that were measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth

# Steps a second on a V100: alone, and of both members of the pair.
TABLE = {
    "v100": {
        "('one', 1)": {"null": 4.0, "('one', 1)": [2.0, 2.0], "('two', 1)": [3.2, 1.5]},
        "('two', 1)": {"null": 2.0, "('two', 1)": [1.0, 1.0], "('one', 1)": [1.5, 3.2]},
    }
}


def pair(steps: float) -> Trace:
    return Trace(
        "pair",
        tuple(
            (Job(JobId(m), demand=Demand(1), model=m, hints={"steps": steps * rate}), Truth(steps))
            for m, rate in (("one", 4.0), ("two", 2.0))
        ),
    )


def test_a_pair_that_gains_by_sharing_shares_and_gains(tmp_path: Path) -> None:
    profiles = tmp_path / "speeds.json"
    profiles.write_text(json.dumps(TABLE))
    alone, packed = (
        weft.simulate(
            pair(36_000.0), policy, "1x1:v100", profiles=str(profiles), restart_cost=0.0
        ).outcomes[policy][0]
        for policy in ("gavel", "gavel:packed=true")
    )

    assert alone.metrics["makespan_h"] == pytest.approx(20.0, rel=0.02)
    # 'one' at 3.2 of 4 and 'two' at 1.5 of 2: both together do 1.55 times the work.
    assert packed.metrics["makespan_h"] < 0.75 * alone.metrics["makespan_h"]
    assert packed.metrics["makespan_h"] >= 20.0 / 1.55 - 0.1


@pytest.mark.data
@pytest.mark.slow
def test_sharing_shortens_completion_under_load(data: Callable[[str], Path]) -> None:
    trace = str(data("gavel/gen_single_300j_r6.0_s7.trace"))
    profiles = str(data("gavel/simulation_throughputs.json"))
    alone, packed = (
        weft.simulate(
            trace, policy, "2x4:v100+2x4:p100+2x4:k80", profiles=profiles, restart_cost=0.0
        )
        .outcomes[policy][0]
        .metrics["avg_jct_h"]
        for policy in ("gavel", "gavel:packed=true")
    )

    assert packed < 0.8 * alone
