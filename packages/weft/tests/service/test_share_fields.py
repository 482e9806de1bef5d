"""What a job file says of company on its GPUs, and back."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from weft.cli.job_files.job_options import share_of
from weft.core.model.job import Job
from weft.service.requests.job_file import JobFile, job_of
from weft.service.routes.jobs.job_files import file_of


def read(**fields: Any) -> Job:
    body = JobFile.model_validate({"command": ["python", "t.py"], **fields})
    return job_of(body, tenant="t", user="u")


@pytest.mark.parametrize(
    ("share", "shareable", "slowdown", "memory_gb"),
    [
        ("allowed", True, None, None),
        (True, True, None, None),
        (False, False, None, None),
        ("never", False, None, None),
        ({"slowdown": 1.3}, True, 1.3, None),
        ({"slowdown": 1.3, "memory_gb": 20}, True, 1.3, 20.0),
    ],
)
def test_what_is_said_is_what_the_job_has(
    share: Any, *, shareable: bool, slowdown: float | None, memory_gb: float | None
) -> None:
    job = read(share=share)

    assert (job.shareable, job.slowdown, job.gpu_mem_gb) == (shareable, slowdown, memory_gb)


def test_guaranteed_jobs_are_promised_more_unless_they_say() -> None:
    assert read(priority="guaranteed").slowdown == 1.1
    assert read(priority="guaranteed", share={"slowdown": 2}).slowdown == 2.0


@pytest.mark.parametrize(
    "share", [{"slowdown": 0.5}, {"memory_gb": 0}, {"speed": 1}, {"slowdown": "fast"}]
)
def test_what_cannot_be_is_refused(share: Any) -> None:
    with pytest.raises(ValidationError, match="share"):
        read(share=share)


@pytest.mark.parametrize("share", ["never", {"slowdown": 1.3, "memory_gb": 20.0}, 0.5])
def test_the_file_of_a_job_says_the_same(share: Any) -> None:
    assert file_of(read(share=share))["share"] == share


def test_the_file_of_a_guaranteed_job_leaves_out_what_is_implied() -> None:
    assert "share" not in file_of(read(priority="guaranteed"))


def test_flags_say_the_same() -> None:
    assert share_of("slowdown=1.3,memory_gb=20") == {"slowdown": 1.3, "memory_gb": 20.0}
