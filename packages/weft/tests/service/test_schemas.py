"""Job files at the boundary: what is taken, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Pattern, Traffic, TrafficPhase
from weft.core.model.job import BatchRange, Demand, Tier
from weft.service.requests.job_file import JobFile, job_of, new_id


def read(**fields: Any) -> JobFile:
    return JobFile.model_validate(fields)


def test_the_example_of_the_design_is_read_field_by_field() -> None:
    body = read(
        name="resnet18",
        command=["python", "train.py"],
        workdir=".",
        env={"DATA": "/data", "EPOCHS": 3},
        gpus={"min": 1, "max": 16},
        kinds=["a100", "h200"],
        batch={"init": 128, "max": 4096, "max_per_gpu": 1024},
        share="allowed",
        tenant="vision",
        priority="opportunistic",
        checkpoint={"dir": "ckpt", "grace_s": 60},
        cpus=4,
        mem_gb=16,
    )

    job = job_of(body, tenant="vision", user="ada")

    assert job.id.startswith("resnet18-")
    assert job.demand == Demand(1, 1, 16, ("a100", "h200"))
    assert job.batch == BatchRange(128, 4096, 1024)
    assert job.tier is Tier.OPPORTUNISTIC
    assert (job.cpus, job.mem_gb, job.user, job.preemptible) == (4.0, 16.0, "ada", True)
    assert job.launch is not None
    assert job.launch.command == ("python", "train.py")
    assert dict(job.launch.env) == {"DATA": "/data", "EPOCHS": "3"}
    assert (job.launch.checkpoint, job.launch.grace_s) == ("ckpt", 60.0)


def test_checkpoints_may_be_in_an_object_store() -> None:
    def place(text: str) -> str:
        job = job_of(read(command=["x"], checkpoint={"dir": text}), tenant="t", user="")
        assert job.launch is not None
        return job.launch.checkpoint

    assert place("s3://bucket/run 7/") == "s3://bucket/run 7"
    assert place("gs://bucket") == "gs://bucket"
    assert place("file:///nfs/run") == "/nfs/run"


def test_a_job_that_does_not_say_how_it_restarts_is_not_stopped_for_others() -> None:
    plain = job_of(read(command=["x"]), tenant="t", user="")
    asked = job_of(read(command=["x"], preemptible=True), tenant="t", user="")

    assert not plain.preemptible
    assert asked.preemptible


FOLDERS = (
    "../../other",
    "a\0b",
    "s3://",
    "s3:///run",
    "s3://bucket/../other",
    "s3://bucket/run?versionId=3",
    "s3://me:password@bucket/run",
    "file://host/run",
    "memory://run",
    "S3 x://run",
)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "two\nlines"},
        {"name": "nul\0"},
        {"name": "\x1b[31mred"},
        {"name": ""},
        {"name": "x" * 129},
        {"id": "../../etc/passwd"},
        {"id": ".."},
        {"id": "a/b"},
        {"id": "a b"},
        {"tenant": "../other"},
        {"tenant": "a|b"},
        {"tenant": "a,b=c"},
        {"kinds": ["a100;rm"]},
        {"workdir": "../up"},
        {"workdir": "/data/../etc"},
        {"workdir": "/data\n"},
        *({"checkpoint": {"dir": folder}} for folder in FOLDERS),
        {"env": {"A=B": "c"}},
        {"env": {"": "c"}},
        {"env": {"A": "nul\0"}},
        {"command": ["sh", "nul\0"]},
        {"command": []},
        {"command": [""]},
        {"gpus": 0, "batch": {"init": 1, "max": 2}},
        {"gpus": -1},
        {"gpus": True},
        {"gpus": 1.5},
        {"gpus": {"min": 4, "max": 2}},
        {"gpus": 10**30},
        {"batch": {"init": 10, "max": 5}},
        {"share": 0},
        {"share": 0.5, "gpus": 2},
        {"mem_gb": float("inf")},
        {"cpus": float("nan")},
        {"hints": {"duration_s": float("nan")}},
        {"priority": "urgent"},
        {"retries": -1},
    ],
    ids=repr,
)
def test_what_could_do_harm_or_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read(**{"command": ["true"], **fields})


def test_commands_and_variables_may_hold_anything_but_nul() -> None:
    nasty = "$(rm -rf /); `id` && \n'\"| ../.. \\ \u202e 💥"

    job = job_of(read(command=["echo", nasty], env={"X": nasty}), tenant="t", user="")

    assert job.launch is not None
    assert job.launch.command == ("echo", nasty)
    assert job.launch.env["X"] == nasty


@pytest.mark.parametrize("name", ["../../x", "a b", "💥", "", "-", "x" * 500, "A.B_c"])
def test_an_id_made_from_any_name_is_one_word(name: str) -> None:
    made = new_id(name)

    assert JobFile.model_validate({"id": made}).id == made
    assert made != new_id(name)


@pytest.mark.parametrize(
    "fields",
    [
        {"share": 1e-300},
        {"share": 0.001},
        {"share": float("nan")},
        {"cpus": -1.0},
        {"cpus": 1e9},
        {"cpus": float("nan")},
        {"mem_gb": 1e9},
        {"mem_gb": float("inf")},
        {"deadline_s": float("nan")},
        {"hints": {"duration_s": float("nan")}},
    ],
)
def test_numbers_that_would_trouble_every_decision_are_refused_by_field(
    fields: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError) as refused:
        read(command=["true"], **fields)

    (name,) = fields
    assert {str(error["loc"][0]) for error in refused.value.errors()} == {name}


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "|", "tee", "log"],
        ["cd", "code", "&&", "python", "train.py"],
        ["python", "a.py;", "python", "b.py"],
        ["python", "train.py", ">", "log"],
    ],
)
def test_words_that_only_a_shell_understands_are_refused_with_the_way_out(
    command: list[str],
) -> None:
    with pytest.raises(ValidationError, match=r"no shell reads it.*run: \|"):
        read(command=command)


def test_arguments_that_look_a_little_like_a_shell_are_taken() -> None:
    read(command=["find", ".", "-exec", "rm", "{}", ";"])
    read(command=["bash", "-c", "a | b"])
    read(command=["sh", "-c", "true;"])
    read(command=["python", "train.py", "--name", "a|b"])


def test_a_script_is_run_by_a_shell_that_stops_at_a_failure() -> None:
    job = job_of(read(run="make data | tee log\npython train.py\n"), tenant="t", user="")

    assert job.launch is not None
    shell = ("bash", "-eo", "pipefail", "-c")
    assert job.launch.command == (*shell, "make data | tee log\npython train.py\n")
    with pytest.raises(ValidationError, match="two ways to say the same"):
        read(run="true", command=["true"])


def test_how_often_a_command_is_started_can_be_said() -> None:
    requests = [read(command=["x"]), read(command=["x"], processes=1)]
    requests.append(read(command=["x"], processes="per-gpu"))

    launched = [job_of(body, tenant="t", user="").launch for body in requests]

    assert [launch.processes for launch in launched if launch] == ["auto", "1", "per-gpu"]
    with pytest.raises(ValidationError):
        read(command=["x"], processes=2)


def test_nodes_are_a_part_of_what_a_job_asks_for() -> None:
    asked = job_of(read(command=["x"], gpus=8, nodes=2), tenant="t", user="")

    assert asked.demand == Demand(8, nodes=2)
    with pytest.raises(InvalidConfig, match="nodes: 7 GPUs cannot be divided evenly"):
        job_of(read(command=["x"], gpus=7, nodes=2), tenant="t", user="")


def test_what_an_iteration_sends_reaches_the_job() -> None:
    sent = {"iteration_s": 0.25, "share": 0.4, "gbit": 5.0, "pattern": "tree", "sensitive": False}
    phase = {"start_s": 0.15, "seconds": 0.1, "gbps": 50.0}

    job = job_of(read(command=["a"], traffic={**sent, "phases": [phase]}), tenant="t", user="u")

    expected = Traffic(
        0.25, 0.4, 5.0, Pattern.TREE, (TrafficPhase(0.15, 0.1, 50.0),), sensitive=False
    )
    assert job.traffic == expected


@pytest.mark.parametrize(
    ("traffic", "why"),
    [
        ({"iteration_s": 0.0}, "iteration_s"),
        ({"iteration_s": 1.0, "share": 0.5}, "above 0 where share is"),
        ({"iteration_s": 1.0, "phases": [{"start_s": 0.9, "seconds": 0.2, "gbps": 1.0}]}, "inside"),
        ({"iteration_s": 1.0, "speed": 3.0}, "speed"),
    ],
)
def test_an_iteration_that_cannot_be_is_refused(traffic: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        read(command=["a"], traffic=traffic)
