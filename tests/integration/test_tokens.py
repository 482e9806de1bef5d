"""Stage tokens for real: processes, sockets, kill -9."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_ranks as ranks

from tests.waiting import LIMIT_S, wait_until
from weft.base.tokens import FROM_MEMBER, Inspect, Inspected, from_coordinator
from weft.node.tokens.coordinator import LEASE_S, LEAST_S
from weft_train.base.environment import Environment
from weft_train.base.messages import Turns

Start = Any
ENOUGH = "enough"  # a file beside the notes of members, who end when it is there


class Node:
    """A coordinator process that can be killed and started again."""

    def __init__(self, path: Path, discipline: str) -> None:
        self.path, self.discipline = path, discipline
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft.node.tokens", str(self.path),
             "--discipline", self.discipline],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self.looks, "it answers")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def looks(self) -> list[Inspected]:
        return look(str(self.path))


def look(path: str) -> list[Inspected]:
    """What a coordinator shows; nothing while it is away."""
    words, seen = from_coordinator(), list[Inspected]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(LIMIT_S)
        try:
            line.connect(path)
            line.sendall(FROM_MEMBER.encode(Inspect()))
            while not seen or seen[-1].job:
                chunk = line.recv(65_536)
                if not chunk:
                    return []
                seen += [m for m in words.feed(chunk) if isinstance(m, Inspected)]
        except OSError:
            return []
    return seen


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node(tmp_path / "tokens", getattr(request, "param", "work-conserving"))
    yield made
    made.kill()


def turns(notes: str, steps: int, io_s: float, gpu_s: float, die_at: int, hold: int) -> None:
    """A member without torch: notes when each stage began and ended."""
    from weft_train.base.environment import Environment
    from weft_train.turns.gate import TurnTokens

    env = Environment.read()
    tokens = TurnTokens(env)
    gpus = tuple(f"gpu:{number}" for number in range(hold))
    with Path(notes).open("w", buffering=1) as out:
        for step in range(steps):
            if Path(notes).with_name(ENOUGH).exists():
                break
            for names, length in ((("io",), io_s), (gpus, gpu_s)):
                tokens.acquire(*names)
                began = time.monotonic()
                if step == die_at and "io" not in names:
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(length)
                ended = time.monotonic()
                tokens.release(*names, used_s=length)
                note = {"tokens": names, "began": began, "ended": ended, "on": tokens.connected}
                out.write(json.dumps(note) + "\n")
        out.write(json.dumps({"done": True, "lost": tokens.lost}) + "\n")


def member(
    node: Node, folder: Path, name: str, *, steps: int = 10, io_s: float = 0.01,
    gpu_s: float = 0.01, die_at: int = -1, hold: int = 1,
) -> Start:  # fmt: skip
    env = {"WEFT_JOB": name, "WEFT_COORDINATOR": str(node.path)}
    return ranks.start(turns, 1, env, str(folder / name), steps, io_s, gpu_s, die_at, hold)


def notes_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def overlaps(folder: Path, names: list[str], token: str) -> int:
    """How often two members were in a stage with `token` at the same time."""
    stages = sorted(
        (note["began"], note["ended"])
        for name in names
        for note in notes_of(folder, name)
        if token in note.get("tokens", ())
    )
    return sum(later[0] < earlier[1] for earlier, later in itertools.pairwise(stages))


def test_no_two_processes_hold_a_token_and_different_tokens_overlap(
    node: Node, tmp_path: Path
) -> None:
    names = ["a", "b", "c"]
    processes = [p for name in names for p in member(node, tmp_path, name, steps=12)]

    codes = ranks.finish(processes)

    assert codes == [0, 0, 0]
    assert overlaps(tmp_path, names, "gpu:0") == 0
    assert overlaps(tmp_path, names, "io") == 0
    stages = {
        name: [note for note in notes_of(tmp_path, name) if "tokens" in note] for name in names
    }
    beside = [
        (mine["tokens"], other["tokens"])
        for a, b in itertools.combinations(names, 2)
        for mine, other in itertools.product(stages[a], stages[b])
        if mine["began"] < other["ended"] and other["began"] < mine["ended"]
    ]
    assert beside, "io of one runs beside gpu of another"


def test_turns_change_only_when_the_device_is_done_with_the_last_stage(
    node: Node, tmp_path: Path
) -> None:
    from weft_train.turns.gate import TurnTokens

    other = Node(tmp_path / "other", "lockstep")
    tokens = TurnTokens(Environment(job="a", coordinator=str(node.path)))
    tokens.acquire("gpu:0")
    freed: list[float] = []

    def device() -> None:  # a GPU is behind the thread that feeds it
        time.sleep(0.3)
        freed.append(time.monotonic())
        tokens.release("gpu:0", used_s=0.3)

    watcher = threading.Thread(target=device)
    watcher.start()
    tokens.change_turns(Turns(str(other.path), phase=0.5))
    turned = time.monotonic()
    tokens.acquire("gpu:0")
    watcher.join()

    assert turned >= freed[0]
    assert [len(server.looks()) for server in (node, other)] == [1, 2]  # the last has no job
    assert tokens.lost == 0
    tokens.change_turns(Turns(""))
    assert tokens.acquire("gpu:0") == 0.0
    assert len(other.looks()) == 1
    other.kill()


def test_a_killed_holder_frees_its_tokens_at_once(node: Node, tmp_path: Path) -> None:
    doomed = member(node, tmp_path, "doomed", die_at=3)
    other = member(node, tmp_path, "other", steps=20)

    codes = ranks.finish([*doomed, *other])

    assert codes == [-9, 0]
    waits = [note for note in notes_of(tmp_path, "other") if "tokens" in note]
    longest = max(b["began"] - a["ended"] for a, b in itertools.pairwise(waits))
    assert longest < LEASE_S + LEAST_S, "the lease's end was not waited for"
    assert node.looks()[-1].values["members"] == 0


def test_training_outlives_the_coordinator_and_finds_the_next_one(
    node: Node, tmp_path: Path
) -> None:
    names = ["a", "b"]
    processes = [p for name in names for p in member(node, tmp_path, name, steps=100_000)]

    def connected(name: str) -> list[bool]:
        notes = notes_of(tmp_path, name) if (tmp_path / name).exists() else []
        return [note["on"] for note in notes if "on" in note]

    wait_until(lambda: all(len(connected(name)) >= 10 for name in names))
    node.kill()
    wait_until(lambda: not any(connected(name)[-1] for name in names), "they go on alone")
    node.start()
    wait_until(lambda: all(connected(name)[-1] for name in names), "they come back")
    (tmp_path / ENOUGH).touch()

    codes = ranks.finish(processes)

    assert codes == [0, 0]
    for name in names:
        assert connected(name)[0]
        assert notes_of(tmp_path, name)[-1] == {"done": True, "lost": 1}


def test_gangs_that_want_several_gpus_do_not_deadlock(node: Node, tmp_path: Path) -> None:
    names = ["gang", "gang2", "single"]
    holds = [2, 2, 1]
    processes = [
        p
        for name, hold in zip(names, holds, strict=True)
        for p in member(node, tmp_path, name, steps=15, hold=hold)
    ]

    codes = ranks.finish(processes)

    assert codes == [0, 0, 0]
    assert overlaps(tmp_path, names, "gpu:0") == 0
    assert overlaps(tmp_path, names, "gpu:1") == 0


@pytest.mark.parametrize("node", ["lockstep", "timeslice:quantum_s=0.1", "paced"], indirect=True)
def test_every_discipline_lets_all_finish(node: Node, tmp_path: Path) -> None:
    names = ["a", "b"]
    processes = [p for name in names for p in member(node, tmp_path, name, steps=8)]

    codes = ranks.finish(processes)

    assert codes == [0, 0]
    assert overlaps(tmp_path, names, "gpu:0") == 0


def test_a_holder_that_stands_still_is_passed_by(node: Node, tmp_path: Path) -> None:
    stuck = member(node, tmp_path, "stuck", steps=500, gpu_s=0.02)
    other = member(node, tmp_path, "other", steps=60)
    while not (tmp_path / "other").exists() or len(notes_of(tmp_path, "other")) < 8:
        time.sleep(0.005)
    pid = stuck[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    codes = ranks.finish(other)
    os.kill(pid, signal.SIGKILL)
    ranks.finish(stuck)

    assert codes == [0]


def test_a_bad_line_ends_that_connection_only(node: Node, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(LIMIT_S)
        line.connect(str(node.path))
        line.sendall(b"what?\n")
        assert line.recv(100) == b""

    assert node.looks()[-1].values["members"] == 0


def test_an_unknown_discipline_is_refused_with_the_closest() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "weft.node.tokens", "/tmp/x", "--discipline", "lockstop"],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip

    assert ran.returncode == 2
    assert "did you mean 'lockstep'?" in ran.stderr


def train_and_stay(notes: str) -> None:
    """Train as a member that stays until all have been seen."""
    from train_script import train

    train(notes, epochs=2)
    wait_until(Path(notes).with_name(ENOUGH).exists)


def test_gangs_of_real_ranks_take_turns_and_learn_the_same(node: Node, tmp_path: Path) -> None:
    from train_script import notes, train

    def go(name: str, script: Any, env: dict[str, str]) -> Start:
        return ranks.start(script, 2, {"WEFT_JOB": name, **env})

    alone = ranks.finish(
        go("alone", functools.partial(train, str(tmp_path / "alone"), epochs=2), {})
    )
    env = {"WEFT_COORDINATOR": str(node.path), "WEFT_DEVICES": "0,1"}
    processes = [
        process
        for name in ("a", "b")
        for process in go(name, functools.partial(train_and_stay, str(tmp_path / name)), env)
    ]
    wait_until(lambda: node.looks()[-1].values["members"] == 2)
    (tmp_path / ENOUGH).touch()
    codes = ranks.finish(processes)

    assert alone == [0, 0]
    assert codes == [0, 0, 0, 0]
    losses = {
        name: sorted(
            (n["step"], n["rank"], n["loss"]) for n in notes(tmp_path, name) if "loss" in n
        )
        for name in ("alone", "a", "b")
    }
    assert losses["a"] == losses["b"] == losses["alone"]
