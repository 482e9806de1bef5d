"""What a job did in vain is not taken for progress."""

from __future__ import annotations

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth

MINUTE, HOUR = 60.0, 3600.0


def test_a_job_that_was_stopped_often_is_not_taken_to_have_outlived_its_known_length() -> None:
    short = [(f"s{i}", 5 * MINUTE * (i + 1), MINUTE) for i in range(140)]
    jobs = [("long", 0.0, 4 * HOUR), *short, ("next", 5 * MINUTE * 60, HOUR)]
    trace = Trace(
        "stops",
        tuple(
            (Job(JobId(name), at, Demand(8)), Truth(length))
            for name, at, length in sorted(jobs, key=lambda job: job[1])
        ),
    )

    result = weft.simulate(trace, "weft", "1x8:v100", predictor="oracle", restart_cost=MINUTE)

    done = result.outcomes["weft"][0].per_job
    end = dict(zip(done.id, done.end_s.tolist(), strict=True))
    held = dict(zip(done.id, (done.gpu_s / 8.0).tolist(), strict=True))
    assert held["long"] > 5 * HOUR  # what it held includes its restarts
    assert end["long"] < end["next"]
