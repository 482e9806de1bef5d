"""What a notebook shows of a job and of a sweep."""

from __future__ import annotations

from typing import Any

from weft_client.cards import job_card, sweep_card
from weft_client.job import JobStatus


def status(**fields: Any) -> JobStatus:
    known = {"id": "tune.0", "name": "tune.0", "state": "running", "reason": "", "attempt": 1}
    return JobStatus.of({**known, "progress": None, "gpu_seconds": 1.0, **fields})


def test_a_job_shows_what_its_program_measured() -> None:
    held = {"val_loss": {"value": 0.656231, "step": 20}, "<b>": {"value": None, "step": 20}}
    card = job_card(status(metrics=held, measured={"steps": 20, "total_steps": 60}))

    assert "<div>val_loss 0.6562, &lt;b&gt; nan, step 20 of 60</div>" in card


def test_a_job_that_has_measured_nothing_shows_its_state_alone() -> None:
    assert "<div>" not in job_card(status())


def test_a_sweep_shows_parameters_and_metrics_side_by_side() -> None:
    held = {"val_loss": {"value": 0.5, "step": 20}}
    jobs = [status(parameters={"lr": "0.1"}, metrics=held), status(parameters={"lr": "0.2"})]

    rows = sweep_card("tune", jobs).split("<tr>")[1:]

    assert [[cell in row for cell in ("lr<", "val_loss<", "0.1<", "0.5<")] for row in rows] == [
        [True, True, False, False],
        [False, False, True, True],
        [False, False, False, False],
    ]
