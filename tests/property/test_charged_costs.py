"""What starts and restarts cost is found out from the rows of a comparison, whatever it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.report.verify import JobRun, Severity, SimRun, Stretch, verify

RUNS = ("fifo", "srtf", "las")
COST_S = 30.0


def draw(
    rng: np.random.Generator,
    *,
    starts: dict[str, float] | None = None,
    restarts: dict[str, float] | None = None,
    startup_s: float | None = None,
    speed: dict[str, float] | None = None,
) -> list[SimRun]:
    """The same work under three policies, of which `fifo` stops nobody."""
    work = rng.lognormal(7.0, 1.0, 24)
    runs = []
    for run in RUNS:
        jobs = {}
        for number, seconds in enumerate(work.tolist()):
            parts = 1 if run == "fifo" or number % 2 else int(rng.integers(2, 4))
            at, held = 10.0 * number, []
            for part in range(parts):
                cost = ((restarts if part else starts) or {}).get(run, COST_S)
                slow = (speed or {}).get(run, 1.0) ** float(rng.uniform(0.0, 1.0))
                end = at + cost + slow * seconds / parts
                held.append(Stretch(at, end, float(number % 3 + 1), startup_s))
                at = end + float(rng.integers(5, 500))
            jobs[f"j{number}"] = JobRun(0.0, held[-1].end, tuple(held))
        runs.append(SimRun(run, 1000.0, jobs, finished=len(jobs)))
    return runs


def charged(runs: list[SimRun]) -> tuple[Severity, str]:
    charge = next(finding for finding in verify(runs) if finding.check == "charged")
    return charge.level, charge.text


@given(seed=st.integers(0, 10**6))
def test_costs_that_are_charged_to_all_alike_are_found(seed: int) -> None:
    level, text = charged(draw(np.random.default_rng(seed)))

    assert level is Severity.OK
    assert text == "starts cost as much as under fifo; a restart costs 30.0 s under srtf, las"


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"restarts": {"las": 0.0}}, "a restart costs 0.0 s under las"),
        ({"starts": {"srtf": 0.0}}, "a start costs -30.0 s under srtf, against fifo"),
        ({"starts": {"fifo": 90.0}}, "a start costs -60.0 s under srtf, against fifo"),
        (
            {"startup_s": COST_S, "restarts": dict.fromkeys(RUNS, 0.0)},
            "a restart costs 0.0 s, is said to cost 30.0 s, under srtf, las",
        ),
    ],
)
@given(seed=st.integers(0, 10**6))
@example(seed=510509)  # a little less than nothing, which is said as nothing
def test_costs_that_are_not_charged_to_all_alike_are_named(
    faults: dict[str, dict[str, float]], words: str, seed: int
) -> None:
    level, text = charged(draw(np.random.default_rng(seed), **faults))  # type: ignore[arg-type]

    assert level is Severity.WRONG
    assert words in text


@given(seed=st.integers(0, 10**6))
def test_nothing_is_said_where_jobs_run_at_other_speeds(seed: int) -> None:
    runs = draw(np.random.default_rng(seed), speed={"srtf": 2.0, "las": 3.0})

    assert charged(runs)[0] is Severity.UNKNOWN


def test_nothing_is_said_of_one_run_or_few_jobs() -> None:
    runs = draw(np.random.default_rng(0))
    few = [SimRun(r.name, r.gpus, dict([*r.jobs.items()][:4]), finished=4) for r in runs]

    assert charged(runs[:1])[0] is Severity.UNKNOWN
    assert charged(few)[0] is Severity.UNKNOWN
