"""Reservations of Slurm that were announced: jobs end before they begin, and none is started in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.core.model.job import NodeId
from weft.engines.fleet.port import Closing
from weft.engines.slurm.clients import LEAD_S, Reservations, read_reservations
from weft.engines.slurm.script import SbatchOptions
from weft.service.responses.answers import Made, Nodes

LINE = (
    "ReservationName=repair StartTime=1000 EndTime=4000 Duration=00:50:00 Nodes=a[1-2] NodeCnt=2 "
    "Flags=MAINT,SPEC_NODES Users=root State=INACTIVE\n"
    "ReservationName=licences StartTime=1 EndTime=2 Nodes=(null) NodeCnt=0 State=ACTIVE\n"
)


def scontrol(*words: str) -> None:
    subprocess.run(["scontrol", *words], check=True, stdout=subprocess.DEVNULL)


def ask(*command: str) -> list[str]:
    return subprocess.check_output(command, text=True).split()


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_jobs_leave_before_a_maintenance_that_was_announced(tmp_path: Path, mode: str) -> None:
    name = f"repair-{mode}"
    start = f"now+{LEAD_S + 60:.0f}"
    create = ["create", "reservation", f"reservationname={name}", "users=root", "duration=9"]
    scontrol(*create, f"starttime={start}", "nodes=a[1-2]", "flags=maint,ignore_jobs")
    service = Service(tmp_path / "state", ("--engine", f"slurm:mode={mode}", "--policy", "fifo"))
    service.start()
    try:
        wait_until(lambda: name in service.client.raw("/reservations").decode(), "it is seen")
        job = {"gpus": 2, "kinds": ["a100"], "command": ["sleep", "1000"]}
        service.client.post(Made, "/jobs", {**job, "id": "limited", "time_limit_s": 900})
        service.client.post(Made, "/jobs", {**job, "id": "any"})

        wait_until(lambda: service.job("any").state == "running", "what has no limit runs")
        assert service.job("limited").state == "pending"
        limits = set(ask("squeue", "-h", "-w", "a1,a2", "-o", "%l"))
        assert limits
        assert limits <= {"3:00", "4:00"}

        wait_until(lambda: service.job("any").state == "preempted", "it has left")
        assert service.job("any").failures == 0
        held = ["squeue", "-h", "-w", "a1,a2", "-o", "%i"]
        wait_until(lambda: not ask(*held), "the nodes are given back")
    finally:
        service.end()
        scontrol("delete", f"reservationname={name}")


@pytest.mark.usefixtures("slurm")
def test_with_a_reservation_of_its_own_weft_has_its_nodes_alone(tmp_path: Path) -> None:
    create = ["create", "reservation", "reservationname=weft", "users=root", "duration=99"]
    scontrol(*create, "starttime=now", "nodes=t[1-2]")
    options = ("--engine", "slurm:reservation=weft", "--policy", "fifo")
    service = Service(tmp_path / "state", options)
    try:
        service.start()
        nodes = service.client.get(Nodes, "/nodes").nodes
        assert {node.id for node in nodes if node.state == "up"} == {"t1", "t2"}
        job = {"id": "inside", "gpus": 1, "command": ["true"]}
        service.client.post(Made, "/jobs", job)
        wait_until(lambda: service.job("inside").state == "succeeded", "it ran")
    finally:
        service.end()
        scontrol("delete", "reservationname=weft")


def test_what_scontrol_says_of_reservations_is_read() -> None:
    assert read_reservations(LINE) == [(Closing("repair", 1000.0, 4000.0), ["a1", "a2"])]
    assert read_reservations("No reservations in the system\n") == []


def test_jobs_are_limited_to_the_time_that_is_left() -> None:
    repair = Closing("repair", 1000.0 - LEAD_S, 4000.0)
    there = Reservations(closings={NodeId("a1"): (repair,)})

    assert there.minutes_left([NodeId("a1"), NodeId("t1")], 400.0) == 10
    assert there.minutes_left([NodeId("a1")], 999.0) == 1
    assert there.minutes_left([NodeId("t1")], 400.0) == 0
    assert there.minutes_left([NodeId("a1")], 4000.0) == 0
    assert there.are_closed(NodeId("a1"), 1000.0 - LEAD_S)
    assert not there.are_closed(NodeId("a1"), 4000.0)


@pytest.mark.parametrize(
    ("asked", "most", "options"),
    [(0, 0, []), (5, 0, ["--time=5"]), (0, 9, ["--time=9"]), (5, 9, ["--time=5"])],
)
def test_a_limit_is_the_lesser_of_two(asked: int, most: int, options: list[str]) -> None:
    assert SbatchOptions("python", "", most_min=most).limit(asked) == options
