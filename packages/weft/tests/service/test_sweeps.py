"""One file with a sweep, as many jobs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from weft.core.model.search import SearchKind, SearchTerms
from weft.service.requests.job_file import JobFile, expand, job_of, search_of


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


SPACE = {"lr": {"log": [1e-5, 1e-1]}, "layers": {"int": [1, 4]}, "opt": ["adam", "sgd"]}


def test_a_search_has_as_many_jobs_as_trials_and_each_knows_how_it_searches() -> None:
    sweep = {"search": "asha", "space": SPACE, "trials": 20, "metric": "loss", "goal": "max"}
    body = JobFile.model_validate({"command": ["train", "${lr}", "${opt}"], "sweep": sweep})

    made = list(expand(body, "tune-1"))
    job = job_of(made[0][0], tenant="t", user="", search=search_of(body))

    assert len(made) == 20
    for single, values in made:
        assert single.command == ["train", values["lr"], values["opt"]]
        assert 1e-5 <= float(values["lr"]) <= 1e-1
        assert values["layers"] in "1234"
    assert job.launch is not None
    assert job.launch.search == SearchTerms(SearchKind.ASHA, "loss", maximize=True, trials=20)


def test_a_search_that_learns_begins_with_what_runs_at_once() -> None:
    sweep = {"search": "optuna", "space": SPACE, "trials": 20, "metric": "loss"}
    body = JobFile.model_validate({"run": "train ${lr}", "sweep": sweep, "max_parallel": 3})

    search = search_of(body)

    assert len(list(expand(body, "tune-1"))) == 3
    assert search is not None
    assert JobFile.model_validate_json(search.body) == body


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"space": SPACE}, "trials: how many"),
        ({"space": SPACE, "trials": 5, "search": "asha"}, "metric: which"),
        ({"space": SPACE, "trials": 1, "search": "grid"}, "more combinations than 1 trials"),
        ({"space": SPACE, "trials": 1001}, "less than or equal to 1000"),
        ({"space": SPACE, "grid": {"a": [1]}, "trials": 5}, "one of them"),
        ({"grid": {"a": [1]}, "trials": 5}, "trials is for a sweep with a space"),
        ({"space": {"lr": {"log": [0.0, 1.0]}}, "trials": 5}, "0 is not above 0"),
        ({"space": {"lr": {"uniform": [1.0, 1.0]}}, "trials": 5}, "1 is not below 1"),
        ({"space": {"lr": {"int": [1, 2.5]}}, "trials": 5}, "not both whole"),
        ({"space": {"lr": {"int": [1, 2], "log": [1, 2]}}, "trials": 5}, "one of uniform"),
        ({"space": {"lr": []}, "trials": 5}, "at least 1 item"),
    ],
)
def test_what_is_no_search_is_refused(sweep: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        expanded(command=["true"], sweep=sweep)
