"""One file with a sweep, as many jobs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from weft.service.requests.job_file import JobFile, expand, job_of


def expanded(**fields: Any) -> list[tuple[JobFile, dict[str, str]]]:
    return list(expand(JobFile.model_validate(fields), "tune-1"))


def test_a_grid_gives_a_job_for_each_combination() -> None:
    made = expanded(
        name="tune",
        command=["python", "train.py", "--lr=${lr}", "${HOME}/${seed}"],
        env={"OUT": "runs/${index}", "N": 3},
        checkpoint={"dir": "ckpt/${sweep}/${index}"},
        sweep={"grid": {"lr": [0.1, 0.01], "seed": [1, 2, 3]}},
        max_parallel=2,
    )

    first, values = made[4]
    assert [chosen for _, chosen in made][:2] == [
        {"lr": "0.1", "seed": "1"},
        {"lr": "0.1", "seed": "2"},
    ]
    assert len(made) == 6
    assert values == {"lr": "0.01", "seed": "2"}
    assert first.command == ["python", "train.py", "--lr=0.01", "${HOME}/2"]
    assert first.env["OUT"] == "runs/4"
    assert first.env["WEFT_SWEEP_LR"] == "0.01"
    assert first.checkpoint is not None
    assert first.checkpoint.dir == "ckpt/tune-1/4"
    assert (first.id, first.name, first.app) == ("tune-1.4", "tune.4", "tune-1")


def test_a_list_gives_a_job_for_each_entry() -> None:
    made = expanded(run="train ${size} ${deep}", sweep={"list": [{"size": 1, "deep": True}, {}]})

    assert [request.run for request, _ in made] == ["train 1 true", "train ${size} ${deep}"]


def test_a_file_without_a_sweep_is_one_job() -> None:
    assert [values for _, values in expanded(command=["true", "${lr}"])] == [{}]


def test_the_jobs_of_a_sweep_are_an_app_with_a_limit() -> None:
    made = expanded(command=["true"], sweep={"grid": {"a": [1, 2]}}, max_parallel=1)

    jobs = [job_of(request, tenant="t", user="", parameters=values) for request, values in made]

    assert {(job.app, job.max_parallel) for job in jobs} == {("tune-1", 1)}
    assert jobs[1].launch is not None
    assert jobs[1].launch.parameters == {"a": "2"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sweep": {}}, "a grid or a list"),
        ({"sweep": {"grid": {"a": [1]}, "list": [{}]}}, "one of them"),
        ({"sweep": {"grid": {"a": [*range(40)], "b": [*range(40)]}}}, "1600 jobs are too many"),
        ({"sweep": {"grid": {"a": []}}}, "at least 1 item"),
        ({"sweep": {"grid": {"a b": [1]}}}, "should match pattern"),
        ({"sweep": {"grid": {"a": [1]}}, "app": "x"}, "leave app out"),
        ({"max_parallel": 2}, "a sweep or an app"),
    ],
)
def test_what_is_no_sweep_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        JobFile.model_validate(fields)
