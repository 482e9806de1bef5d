from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import LIMIT_S

from weft.base.client import AgentConnection
from weft.base.messages import (
    FROM_AGENT,
    Adjust,
    FromAgent,
    FromRank,
    Hello,
    Leaving,
    Report,
    Saved,
    Stop,
    Welcome,
    from_rank,
)

HELLO = Hello("job", 1, 0, 42)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent")


def listening(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.settimeout(LIMIT_S)
    door.bind(path)
    door.listen(1)
    return door


def heard(line: socket.socket, count: int) -> list[FromRank]:
    reader, messages = from_rank(), list[FromRank]()
    line.settimeout(LIMIT_S)
    while len(messages) < count:
        messages += reader.feed(line.recv(65_536))
    return messages


@pytest.fixture
def client(path: str) -> Iterator[AgentConnection]:
    made = AgentConnection(path, HELLO, outbox=4)
    yield made
    made.close(0.0)


def test_it_says_hello_and_hears_the_agent(path: str) -> None:
    orders: list[FromAgent] = [Welcome(), Adjust(8, 1), Stop(5.0)]
    with listening(path) as door:
        client = AgentConnection(path, HELLO)
        line, _ = door.accept()
        messages = heard(line, 1)
        for message in orders:
            line.sendall(FROM_AGENT.encode(message))
        answers = list[FromAgent]()
        while len(answers) < 3:
            answers += client.poll()
        client.close()
        line.close()

    assert messages == [HELLO]
    assert answers == orders


def test_an_agent_that_comes_late_or_back_learns_where_the_job_stands(
    client: AgentConnection, path: str
) -> None:
    client.send(Saved(7, 0, "/c/7"))
    client.send(Report({"step_s": 0.1}))
    with listening(path) as door:
        line, _ = door.accept()
        first = heard(line, 3)
        line.close()
        line, _ = door.accept()
        second = heard(line, 3)
        line.close()

    assert first == [HELLO, Saved(7, 0, "/c/7"), Report({"step_s": 0.1})]
    assert second == first


def test_a_full_outbox_forgets_its_oldest_report_and_never_blocks(
    client: AgentConnection, path: str
) -> None:
    client.send(Saved(1, 0, "/c/1"))  # nobody listens: what blocked would never return
    for n in range(1000):
        client.send(Report({"n": float(n)}))
    client.send(Leaving("stopped"))
    with listening(path) as door:
        line, _ = door.accept()
        messages = heard(line, 5)
        line.close()

    assert client.dropped == 998
    assert messages == [
        HELLO, Saved(1, 0, "/c/1"), Report({"n": 998.0}), Report({"n": 999.0}), Leaving("stopped"),
    ]  # fmt: skip


def test_closing_sends_what_is_left_or_gives_up_in_time(path: str) -> None:
    with listening(path) as door:
        client = AgentConnection(path, HELLO)
        line, _ = door.accept()
        client.send(Leaving("done"))
        all_out = client.close(2.0)
        messages = heard(line, 2)
        line.close()
    Path(path).unlink()
    alone = AgentConnection(path, HELLO)
    alone.send(Leaving("done"))
    lost = not alone.close(0.1)

    assert all_out
    assert messages == [HELLO, Leaving("done")]
    assert lost


def test_an_agent_that_speaks_nonsense_is_hung_up_on_and_called_again(
    client: AgentConnection, path: str
) -> None:
    with listening(path) as door:
        line, _ = door.accept()
        line.sendall(b"nonsense\n")
        again, _ = door.accept()
        messages = heard(again, 1)
        line.close()
        again.close()

    assert messages == [HELLO]
