"""A rank that is always last, and what follows for its device."""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId
from weft.core.protocols import DeviceHealth
from weft.engines.attempts.health_board import ROUNDS, AgentHealth, HealthBoard

JOB = JobId("j1")
N1, N2 = Node(NodeId("n1"), "a100", 2), Node(NodeId("n2"), "a100", 2)
SLOW = "slow: rank 2 of j1 took 2.0 times as long as the others"


def tell(
    board: HealthBoard,
    own: Mapping[int, float],
    *,
    attempt: int = 1,
    nodes: tuple[str, str] = ("n1", "n2"),
    rounds: int = ROUNDS,
    job: JobId = JOB,
    step_s: float = 0.3,
    alone: bool = True,
) -> None:
    """A gang of four ranks on two nodes, each of whose agents speaks for itself."""
    for _ in range(rounds):
        for at, node in enumerate(nodes):
            ranks = (2 * at, 2 * at + 1)
            paces = tuple((rank, rank % 2, own[rank], step_s) for rank in ranks)
            line = AgentHealth(NodeId(node), alone, 4, (), paces)
            board.add_lines((job, attempt), [line])


EVEN = dict.fromkeys(range(4), 0.1)
LATE = {**EVEN, 2: 0.2}


def faults(board: HealthBoard, node: Node) -> dict[int, str]:
    return {device.gpu: device.fault for device in board.devices(node) if device.fault}


def test_the_device_of_a_rank_that_is_last_in_every_round_is_slow() -> None:
    board = HealthBoard()
    tell(board, LATE, rounds=ROUNDS - 1)
    assert faults(board, N2) == {}

    tell(board, LATE, rounds=1)

    assert [*faults(board, N2)] == [0]
    assert faults(board, N2)[0].startswith(SLOW)
    assert faults(board, N1) == {}


def test_a_round_in_which_it_was_not_last_begins_the_count_anew() -> None:
    for between in (EVEN, {**EVEN, 1: 0.3}):
        board = HealthBoard()
        tell(board, LATE, rounds=ROUNDS - 1)
        tell(board, between, rounds=1)
        tell(board, LATE, rounds=ROUNDS - 1)

        assert faults(board, N1) == faults(board, N2) == {}


def test_what_would_gain_nothing_is_no_reason_to_move_a_job() -> None:
    board = HealthBoard()
    tell(board, {**EVEN, 2: 0.12})
    tell(board, LATE, step_s=3.0, job=JobId("j2"))

    assert faults(board, N2) == {}


def test_it_is_the_program_if_the_same_rank_is_slow_elsewhere_too() -> None:
    board = HealthBoard()
    tell(board, LATE)
    why = faults(board, N2)[0]

    tell(board, LATE, attempt=2, nodes=("n2", "n1"))

    assert faults(board, N1) == faults(board, N2) == {}
    assert DeviceHealth(0, withdrawn=why) in board.devices(N2)
    tell(board, LATE, attempt=3)
    assert faults(board, N2) == {}


def test_another_rank_that_is_slow_there_confirms_it() -> None:
    board = HealthBoard()
    tell(board, LATE)

    tell(board, {**EVEN, 0: 0.2}, attempt=2, nodes=("n2", "n1"))

    assert [*faults(board, N2)] == [0]
    assert faults(board, N1) == {}


def test_where_nobody_chooses_devices_the_node_is_out_of_use_with_the_evidence() -> None:
    board = HealthBoard()
    tell(board, LATE, alone=False)

    assert [*faults(board, N2)] == [0, 1]
    assert faults(board, N2)[1].startswith(f"GPU 0: {SLOW}")
    assert faults(board, N1) == {}


def test_what_an_agent_told_of_a_device_stays_until_the_next_one_tells() -> None:
    board = HealthBoard()
    bad = DeviceHealth(1, "Xid 79: it has fallen off the bus")
    board.add_lines((JOB, 1), [AgentHealth(N1.id, True, 1, (bad,), ())])
    assert board.devices(N1) == (bad,)

    board.add_lines((JOB, 2), [AgentHealth(N1.id, True, 1, (DeviceHealth(1, "", ("60 °C",)),), ())])

    assert board.devices(N1) == (DeviceHealth(1, "", ("60 °C",)),)
