"""GPUs that jobs of others hold in the same partition are not counted as free."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.engines.slurm.answers import SlurmJob, expand_hosts, read_taken
from weft.service.responses.answers import Made


def take(node: str, gpus: int) -> str:
    """Submit a job that is not Weft's, and wait until it runs."""
    command = ["sbatch", "--parsable", "-w", node, f"--gres=gpu:a100:{gpus}", "-o", "/dev/null"]
    number = subprocess.check_output([*command, "--wrap", "sleep 1000"], text=True).strip()
    state = ["squeue", "-h", "-j", number, "-o", "%T"]
    wait_until(lambda: subprocess.check_output(state, text=True).strip() == "RUNNING", "it runs")
    return number


@pytest.mark.usefixtures("slurm")
def test_a_job_goes_where_others_left_room_and_another_waits_for_them(tmp_path: Path) -> None:
    others = take("a1", 4)
    take("a2", 2)
    service = Service(tmp_path / "state", ("--engine", "slurm", "--policy", "fifo"))
    service.start()

    def submit(name: str, gpus: int) -> None:
        job = {"id": name, "gpus": gpus, "kinds": ["a100"], "command": ["sleep", "1000"]}
        service.client.post(Made, "/jobs", job)

    def held() -> str:
        return service.client.raw("/reservations").decode()

    try:
        wait_until(lambda: "taken:a1" in held() and "taken:a2" in held(), "they are seen")
        submit("small", 2)
        submit("large", 4)
        wait_until(lambda: service.job("small").state == "running", "small runs")
        assert service.job("large").state in ("pending",)

        subprocess.run(["scancel", others], check=True)

        wait_until(lambda: service.job("large").state == "running", "large runs")
    finally:
        service.end()


@pytest.mark.usefixtures("slurm")
def test_a_pilot_comes_to_a_node_once_others_have_left_it(tmp_path: Path) -> None:
    others = take("a1", 1)  # a pilot takes whole nodes
    engine = "slurm:mode=pilot,nodes=a1/a2"
    service = Service(tmp_path / "state", ("--engine", engine, "--policy", "fifo"))
    service.start()
    try:
        for name in ("first", "second"):
            job = {"id": name, "gpus": 4, "command": ["sleep", "1000"]}
            service.client.post(Made, "/jobs", job)
        wait_until(lambda: service.job("first").state == "running", "first runs")
        assert [part.node for part in service.job("first").allocation or ()] == ["a2"]
        assert service.job("second").state == "pending"

        subprocess.run(["scancel", others], check=True)

        wait_until(lambda: service.job("second").state == "running", "second runs")
        assert [part.node for part in service.job("second").allocation or ()] == ["a1"]
    finally:
        service.end()


def test_ours_are_not_others() -> None:
    def row(node: str, used: str, cpus: str) -> str:
        return f"{node:<100}{used:<400}{cpus:<40}"

    text = "\n".join(
        [
            row("a1", "gpu:a100:3(IDX:0-2)", "6/2/0/8"),
            row("a2", "gpu:a100:1(IDX:0)", "2/6/0/8"),
            row("t1", "gpu:t4:0(IDX:N/A)", "8/0/0/8"),
            row("t2", "gpu:t4:0(IDX:N/A)", "0/8/0/8"),
        ]
    )
    ours = [
        SlurmJob("1", "RUNNING", "", "a1", 1),
        SlurmJob("2", "CONFIGURING", "", "a2", 1),
        SlurmJob("3", "PENDING", "", "", 4),
    ]

    taken = {str(node): gpus for node, gpus in read_taken(text, ours).items()}

    assert taken.keys() == {"a1", "t1"}
    assert taken["a1"] == 2
    assert taken["t1"] >= 4


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a1", ["a1"]),
        ("a[1-2],t1", ["a1", "a2", "t1"]),
        ("gpu[008-010,12]", ["gpu008", "gpu009", "gpu010", "gpu12"]),
    ],
)
def test_lists_of_hosts_are_written_out(text: str, names: list[str]) -> None:
    assert expand_hosts(text) == names
