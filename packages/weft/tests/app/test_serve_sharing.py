"""What a service on the simulated engine knows of jobs that share a device."""

from __future__ import annotations

import pytest

from weft.app.engine import colocate_on, couple_jobs
from weft.app.serve.live import Live, Settings
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import parse_cluster
from weft.sim.engine import SimulatedEngine

CLUSTER = parse_cluster("1x4:a100")


def test_the_simulated_engine_has_the_truth_that_the_scheduler_believes() -> None:
    live = Live(Settings(engine="simulated:sharing=mps"))

    engine = live.driver.engine
    assert isinstance(engine, SimulatedEngine)
    assert engine.sharing == "mps"
    assert engine.coupling is couple_jobs
    assert colocate_on(engine, CLUSTER, "") == couple_jobs(CLUSTER, "mps")


def test_an_unknown_way_of_sharing_is_refused_in_words() -> None:
    with pytest.raises(InvalidConfig, match="timeslicing or mps"):
        Live(Settings(engine="simulated:sharing=wishes"))
