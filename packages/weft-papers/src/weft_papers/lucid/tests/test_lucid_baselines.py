"""The baselines of Lucid's own simulator, composed from parts, on the same jobs.

Its authors' program ran the surrogate trace with its consolidating placer: it holds up everyone
behind a job that does not fit on the fewest nodes. The numbers are mean hours from submission to
end that it printed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import weft
from weft_papers.lucid.published import CLUSTERS, read, trace_of

pytestmark = pytest.mark.data


def mean_hours(data: Callable[[str], Path], policy: str) -> float:
    rows = read(data("lucid/surrogate_trace.csv"))
    times = []
    for name, cluster in CLUSTERS.items():
        trace = trace_of(rows, name, "pred_ebm")
        result = weft.simulate(trace, policy, cluster, restart_cost=0.0, predictor="oracle")
        times.append(result.outcomes[policy][0].per_job.jct_s)
    return float(np.concatenate(times).mean() / 3600.0)


@pytest.mark.parametrize(
    ("policy", "theirs"),
    [
        ("fifo:place=consolidated", 11.27194837962963),
        ("compose:order=sjf,admit=in-turn,place=consolidated", 4.3676414351851855),
    ],
)
def test_composed_baselines_equal_those_of_lucids_simulator(
    data: Callable[[str], Path], policy: str, theirs: float
) -> None:
    assert mean_hours(data, policy) == pytest.approx(theirs, rel=1e-12)


def test_a_baseline_that_scatters_gangs_is_far_from_them(data: Callable[[str], Path]) -> None:
    assert mean_hours(data, "fifo") < 0.6 * 11.27
