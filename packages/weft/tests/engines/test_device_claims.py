"""What a user's agent says of devices: a user can write anything there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId
from weft.engines.attempts.health_board import ROUNDS, AgentHealth, HealthBoard, read_health

N1 = Node(NodeId("n1"), "a100", 2)
ANN, BEN = 1001, 1002


def line(fault: str, witness: int | None, gpu: int = 1) -> AgentHealth:
    body = {"node": "n1", "alone": True, "world": 1, "devices": [(gpu, fault, ())], "paces": []}
    health = read_health(body)
    return AgentHealth(health.node, health.alone, health.ranks, health.devices, (), witness)


def checked(fault: str, witness: int | None) -> AgentHealth:
    body = {"node": "n1", "alone": True, "world": 1, "devices": [], "paces": []}
    return replace(read_health({**body, "checked": [(1, fault)]}), witness=witness)


def test_a_gpu_that_did_not_open_has_a_fault_until_it_does() -> None:
    board = HealthBoard()

    take(board, checked("cuInit answered 100", None), line("", None))
    assert [device.fault for device in board.devices(N1)] == ["cuInit answered 100"]

    take(board, checked("", None))
    assert [device.fault for device in board.devices(N1)] == [""]


def test_that_a_gpu_did_not_open_is_believed_of_two_users_agents() -> None:
    board = HealthBoard()

    take(board, checked("cuInit answered 100", ANN))
    assert [device.fault for device in board.devices(N1)] == [""]

    take(board, checked("cuInit answered 100", BEN))
    assert [device.fault for device in board.devices(N1)] == ["cuInit answered 100"]


def take(board: HealthBoard, *lines: AgentHealth) -> None:
    for at, health in enumerate(lines):
        board.add_lines((JobId(f"job-{at}"), 1), [health])


def test_one_user_cannot_have_a_device_set_aside() -> None:
    board = HealthBoard()

    take(board, line("Xid 79", ANN), line("Xid 79", ANN))

    (device,) = board.devices(N1)
    assert device.fault == ""
    assert device.notes == ("Xid 79 (says an agent of user 1001 alone)",)


def test_a_second_users_agent_confirms_a_fault() -> None:
    board = HealthBoard()

    take(board, line("Xid 79", ANN), line("Xid 79", BEN))

    assert [device.fault for device in board.devices(N1)] == ["Xid 79"]


def test_a_user_cannot_say_that_a_device_with_a_fault_is_well() -> None:
    board = HealthBoard()

    take(board, line("Xid 79", None), line("", ANN))

    assert [device.fault for device in board.devices(N1)] == ["Xid 79"]


def test_a_user_takes_back_what_it_said() -> None:
    board = HealthBoard()

    take(board, line("Xid 79", ANN), line("", ANN), line("Xid 48", BEN))

    assert [device.fault for device in board.devices(N1)] == [""]


def test_one_user_cannot_have_a_device_set_aside_as_slow() -> None:
    board = HealthBoard()
    body: dict[str, Any] = {"node": "n1", "alone": True, "world": 3, "devices": []}
    paces = [(0, 0, 0.1, 1.0), (1, 1, 0.9, 1.0), (2, 2, 0.1, 1.0)]
    health = read_health({**body, "paces": paces})
    own, users = HealthBoard(), AgentHealth(*(health.node, True, 3, (), health.paces), ANN)

    for _ in range(ROUNDS):
        own.add_lines((JobId("gang"), 1), [health])
        board.add_lines((JobId("gang"), 1), [users])

    assert [device.gpu for device in own.devices(N1) if device.fault] == [1]
    assert [device.gpu for device in board.devices(N1) if device.fault] == []


@given(st.lists(st.tuples(st.sampled_from(["", "Xid 79", "slow"]), st.integers(0, 1))))
def test_whatever_one_user_says_no_device_has_a_fault(claims: list[tuple[str, int]]) -> None:
    board = HealthBoard()

    take(board, *(line(fault, ANN, gpu) for fault, gpu in claims))

    assert not any(device.fault for device in board.devices(N1))


def test_a_device_that_no_node_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no node"):
        line("", ANN, gpu=10**9)
    body = {"node": "n1", "alone": True, "world": 1, "devices": [], "paces": []}
    with pytest.raises(ValueError, match="no node"):
        read_health({**body, "checked": [(10**9, "")]})
