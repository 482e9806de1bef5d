"""Files that are brought from a node without the service's folder, or read there."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines.left_files import HOSTILE, KEPT, LARGE, LEAVES, LEFT_OUT, read_whole
from weft.core.artifacts import FileFacts
from weft.core.errors import EngineError, InvalidConfig, UnknownName
from weft.core.model.job import Job, JobId, NodeId
from weft.core.model.launch import Launch
from weft.engines.machine.artifacts import ArtifactFolder
from weft.engines.ray import carrier as carrying
from weft.engines.ray.artifacts import RayArtifacts
from weft.engines.ray.carrier import Carrier, Folder, LeftOut
from weft.engines.ray.node_files import MOST, MOST_NAMED, NOT_TOLD
from weft.engines.ray.runner import Runner
from weft.wire.attempt import EVENTS, SPEC, AttemptSpec


class Growing:
    """A node with a checkpoint that its job writes to faster than it is brought."""

    def __init__(self) -> None:
        self.asked = 0

    def call(self, node: str, method: str, *args: Any) -> Any:
        assert node == "node"
        if method == "listing":
            return [["model/weights.bin", 10, 1_000_000_000, 0o600]]
        _, offset, most = args
        self.asked += 1
        assert self.asked < 100, "it goes on as long as the job writes"
        return b"x" * min(most, 4) if offset < 1000 else b"x" * most


def test_a_file_is_brought_as_long_as_it_was_listed(tmp_path: Path) -> None:
    node = Growing()

    assert list(Carrier(node, 1.0).pull("node", str(tmp_path)))

    brought = tmp_path / "model" / "weights.bin"
    assert (brought.stat().st_size, brought.stat().st_mtime_ns) == (10, 1_000_000_000)
    assert (node.asked, [*brought.parent.iterdir()]) == (3, [brought])


class Nodes:
    """Runners that are asked as the service asks them, by lines of JSON; `gone` are away."""

    def __init__(self, root: Path, *names: str) -> None:
        self.carrier = Carrier(self, 1.0)
        self.moved: list[int] = []
        self.runners = {
            name: Runner(str(root / "state"), str(root / name), "mark", "carried") for name in names
        }
        self.gone: set[str] = set()

    def call(self, node: str, method: str, *args: Any) -> Any:
        answer = self.runners[node].call(method, args)
        for part in (*args, *(answer if isinstance(answer, list) else ())):
            if isinstance(part, bytes):
                self.moved.append(len(part))
        return answer

    async def ask_node(self, node: NodeId, call: str, **given: object) -> Any:
        if node in self.gone:
            raise EngineError(f"node {node!r}, where the job ran, is not in the Ray cluster now")
        return json.loads(json.dumps(getattr(self.carrier, call)(node, **given)))


def left_on(nodes: Nodes, root: Path) -> tuple[RayArtifacts, Job]:
    workdir = root / "state" / "work"
    job = Job(JobId("one"), launch=Launch(("x",), workdir=str(workdir), artifacts="out"))
    folder = ArtifactFolder(workdir, "out", os.geteuid())
    every = [NodeId(name) for name in nodes.runners]
    return RayArtifacts(nodes, lambda _: folder, lambda *_: every), job  # type: ignore[arg-type]


def test_what_a_job_left_is_read_on_the_nodes_where_it_ran(tmp_path: Path) -> None:
    (first := tmp_path / "n1" / "work").mkdir(parents=True)
    (second := tmp_path / "n2" / "work" / "out").mkdir(parents=True)
    (first / "secret").write_text("hush")
    assert os.system(f"cd {first} && {LEAVES} head -c {LARGE} /dev/urandom > out/large") == 0
    (second / "large").write_text("of another rank")
    (second / "own").write_text("22")
    nodes = Nodes(tmp_path, "n1", "n2")
    files, job = left_on(nodes, tmp_path)

    async def read() -> None:
        listed, left_out = await files.list_files(job, 1)
        assert all(isinstance(file, FileFacts) for file in listed)
        sizes = {**KEPT, "out/large": LARGE, "out/own": 2}
        assert {file.path: file.size for file in listed} == sizes
        assert left_out == LEFT_OUT
        assert await read_whole(files, job, "out/large") == (first / "out/large").read_bytes()
        assert await read_whole(files, job, "out/own") == b"22"
        for path in HOSTILE:
            with pytest.raises((UnknownName, InvalidConfig)):
                await files.read(job, 1, path, 0)

        nodes.gone = {"n1"}
        assert [file.path for file in (await files.list_files(job, 1))[0]] == [
            "out/large",
            "out/own",
        ]
        with pytest.raises(EngineError, match="'n1', where the job ran, is not in"):
            await files.read(job, 1, "out/best/model.pt", 0)
        nodes.gone = {"n1", "n2"}
        with pytest.raises(EngineError):
            await files.list_files(job, 1)

    asyncio.run(read())


def test_a_job_that_ran_nowhere_has_left_nothing(tmp_path: Path) -> None:
    files, job = left_on(Nodes(tmp_path), tmp_path)

    assert asyncio.run(files.list_files(job, 0)) == ([], 0)


# ---- Huge files, and files with holes

SAVED = b'{"event":"saved"}\n'
HUGE = 1 << 40


class Attempt:
    """A job on a node: its folder there, its checkpoints there, and both here."""

    def __init__(self, root: Path, name: str, node: str = "n1") -> None:
        below = Path("jobs", name)
        self.here, self.there = root / "state" / below / "1", root / node / below / "1"
        self.saved, self.saves = self.here.parent / "checkpoints", self.there.parent / "checkpoints"
        for folder in (self.here, self.there, self.saves):
            folder.mkdir(parents=True)
        AttemptSpec(name, 1, ("x",), "/", str(self.saved), (0,)).write(self.here)
        self.folder: Folder = (node, str(self.here))

    def report(self, line: bytes = SAVED) -> None:
        """One more line of its agent."""
        with (self.there / EVENTS).open("ab") as out:
            out.write(line)

    @property
    def heard(self) -> bytes:
        """What of these lines was brought."""
        path = self.here / EVENTS
        return path.read_bytes() if path.exists() else b""


def with_hole(path: Path, size: int, data: bytes) -> None:
    """A file of that size with data at its end alone."""
    with path.open("wb") as out:
        out.seek(size - len(data))
        out.write(data)


def test_holes_are_brought_as_holes(tmp_path: Path) -> None:
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    with_hole(job.saves / "sparse", HUGE, b"the end")
    with (job.saves / "empty").open("wb") as out:
        out.truncate(HUGE)
    (job.saves / "empty").chmod(0o640)
    job.report()

    assert nodes.carrier.fetch([job.folder]) == {}

    brought = (job.saved / "sparse").stat()
    assert (brought.st_size, (job.saved / "empty").stat().st_size) == (HUGE, HUGE)
    assert (job.saved / "empty").stat().st_mode & 0o777 == 0o640
    assert brought.st_mtime_ns == (job.saves / "sparse").stat().st_mtime_ns
    assert brought.st_blocks * 512 < MOST
    with (job.saved / "sparse").open("rb") as file:
        file.seek(HUGE - 7)
        assert file.read() == b"the end"
    assert sum(nodes.moved) < MOST
    assert job.heard == SAVED


def test_checkpoints_beyond_the_bound_are_left_out_whole_with_a_reason(tmp_path: Path) -> None:
    nodes, job, other = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a"), Attempt(tmp_path, "b")
    nodes.carrier.most_gb = 0.001
    (job.saves / "latest").write_text("weights")
    (job.saves / "weights").write_bytes(os.urandom(1_000_000))
    for each in (job, other):
        each.report()
    (other.saves / "weights").write_bytes(b"small")

    reasons = nodes.carrier.fetch([job.folder, other.folder])

    (why,) = reasons.pop(str(job.here))
    assert "its checkpoints are not all brought" in why
    assert "at most 0.001 GB of a job are brought (carried_gb)" in why
    assert not reasons
    assert not job.saved.exists()
    assert (other.saved / "weights").read_bytes() == b"small"
    assert (job.heard, other.heard) == (SAVED, SAVED)
    assert sum(nodes.moved) < 1000

    job.report()
    assert nodes.carrier.fetch([job.folder]) == {}, "it is said once"
    (job.saves / "weights").write_bytes(b"now it fits")
    job.report()
    assert nodes.carrier.fetch([job.folder]) == {}
    assert (job.saved / "weights").read_bytes() == b"now it fits"


def test_a_file_that_holds_more_than_was_listed_is_not_brought(tmp_path: Path) -> None:
    class Compressing(Nodes):
        def call(self, node: str, method: str, *args: Any) -> Any:
            answer = super().call(node, method, *args)
            return [[*row[:4], 0] for row in answer] if method == "listing" else answer

    nodes, job = Compressing(tmp_path, "n1"), Attempt(tmp_path, "a")
    nodes.carrier.most_gb = 2 * MOST / 1e9
    (job.saves / "zeros").write_bytes(bytes(4 * MOST))

    with pytest.raises(LeftOut, match="more than was listed"):
        list(nodes.carrier.pull("n1", str(job.saved)))

    assert sum(nodes.moved) <= 3 * MOST
    assert not [*job.saved.iterdir()]


def test_no_job_waits_for_the_checkpoints_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "TURN_S", 0.0)
    nodes, slow, other = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a"), Attempt(tmp_path, "b")
    body = os.urandom(4 * MOST + 1)
    (slow.saves / "weights").write_bytes(body)
    slow.report()
    other.report(b"{}\n")

    nodes.carrier.fetch([slow.folder, other.folder])

    assert (slow.heard, other.heard) == (b"", b"{}\n")
    slow.report()  # of a checkpoint that is newer than the one that is being brought
    (slow.saves / "newer").write_bytes(b"x")
    rounds = 1
    while not slow.heard:
        nodes.carrier.fetch([slow.folder, other.folder])
        rounds += 1
        assert rounds < 20
    assert rounds > 4
    assert (slow.heard, (slow.saved / "weights").read_bytes() == body) == (SAVED, True)
    assert not (slow.saved / "newer").exists()
    while slow.heard == SAVED:
        nodes.carrier.fetch([slow.folder])
    assert (slow.saved / "newer").read_bytes() == b"x"
    assert max(nodes.moved) <= MOST


def test_what_is_replaced_or_removed_meanwhile_is_brought_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "TURN_S", 0.0)
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    for name in ("first", "second"):
        (job.saves / name).write_bytes(bytes(2 * MOST))
    job.report()
    nodes.carrier.fetch([job.folder])
    (job.saves / "new").write_bytes(b"n" * 2 * MOST)
    (job.saves / "new").replace(job.saves / "first")
    (job.saves / "second").unlink()

    while not job.heard:
        assert nodes.carrier.fetch([job.folder]) == {}

    assert not [*job.saved.iterdir()], "nothing of two files in one"
    assert [name for name, *_ in nodes.call("n1", "listing", str(job.saved))] == ["first"]


@pytest.mark.parametrize("what", ["folder", "link", "name"])
def test_files_that_cannot_be_brought_hold_up_no_other_job(tmp_path: Path, what: str) -> None:
    nodes, job, other = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a"), Attempt(tmp_path, "b")
    match what:
        case "folder":  # where a file is here
            job.saved.mkdir()
            (job.saved / "x").write_text("")
            (job.saves / "x").mkdir()
            (job.saves / "x" / "y").write_text("")
        case "link":
            (job.there / "rank-0.log").symlink_to("/etc/passwd")
            (job.saves / "x").symlink_to("/etc/passwd")
            os.mkfifo(job.there / "rank-1.log")
            os.mkfifo(job.saves / "y")
        case "name":
            (job.saves / "a\nb").write_text("")
    for each in (job, other):
        each.report()

    reasons = nodes.carrier.fetch([job.folder, other.folder])

    assert [*reasons] == ([] if what == "link" else [str(job.here)])
    assert (job.heard, other.heard) == (SAVED, SAVED)
    assert {path.name for path in job.here.iterdir()} == {SPEC, EVENTS}


def test_a_node_that_is_late_is_asked_once(tmp_path: Path) -> None:
    class Late(Nodes):
        asked = 0

        def call(self, node: str, method: str, *args: Any) -> Any:
            if node == "n1":
                self.asked += 1
                raise TimeoutError("late")
            return super().call(node, method, *args)

    nodes, other = Late(tmp_path, "n1", "n2"), Attempt(tmp_path, "c", "n2")
    other.report(b"{}\n")

    assert nodes.carrier.fetch([("n1", "/a"), ("n1", "/b"), other.folder]) == {}

    assert (nodes.asked, other.heard) == (1, b"{}\n")


def test_of_an_attempts_folder_so_much_is_brought(tmp_path: Path) -> None:
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    nodes.carrier.most_gb = 2 * MOST / 1e9
    for number in range(2 * MOST_NAMED):
        (job.there / f"a{number}").write_text("")
    with_hole(job.there / "a.log", HUGE, b"end")
    job.report(b"{}\n")

    rounds = [nodes.carrier.fetch([job.folder]) for _ in range(5)]

    ((why,),) = [texts for reasons in rounds for texts in reasons.values()]
    assert "its output is not brought from its node any more: at most" in why
    assert job.heard == b"{}\n"
    assert (job.here / "a.log").stat().st_size <= 2 * MOST
    assert len([*job.here.iterdir()]) <= MOST_NAMED + 1


def test_a_folder_goes_to_a_node_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "TURN_S", 0.0)
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    job.saved.mkdir()
    body = os.urandom(2 * MOST + 1)
    (job.saved / "weights").write_bytes(body)
    with_hole(job.saved / "sparse", HUGE, b"the end")
    (job.saved / "latest").write_text("weights")
    (job.saves / ".pieces").write_bytes(b"of a push that was given up")

    turns = 1
    while not nodes.carrier.push("n1", str(job.saved), begins=turns == 1):
        turns += 1

    assert turns > 4
    assert (job.saves / "weights").read_bytes() == body
    assert {path.name for path in job.saves.iterdir()} == {"weights", "sparse", "latest"}
    assert (job.saves / "sparse").stat().st_size == HUGE
    assert (job.saves / "sparse").stat().st_blocks * 512 < MOST
    assert max(nodes.moved) <= MOST
    assert sum(nodes.moved) < 3 * MOST
    nodes.moved.clear()
    job.report()
    while not job.heard:
        nodes.carrier.fetch([job.folder])
    assert max(nodes.moved) < MOST, "what was sent in pieces is not brought back"


def test_logs_grow_and_other_files_are_brought_anew_also_by_a_service_that_came_back(
    tmp_path: Path,
) -> None:
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    log, state = job.there / "rank-0.log", job.there / "state.json"
    log.write_bytes(b"1" * 5000)
    state.write_text("[1]")
    nodes.carrier.fetch([job.folder])
    (job.here / log.name).write_bytes(b"0" * 5000)  # tells what was here from what is brought

    log.write_bytes(b"1" * 5000 + b"2")
    state.write_text("[2]")
    os.utime(state, ns=(1, 1))  # as new, and as long
    nodes.carrier.fetch([job.folder])
    assert (job.here / log.name).read_bytes() == b"0" * 5000 + b"2"
    assert (job.here / state.name).read_text() == "[2]"

    back = Nodes(tmp_path, "n1")
    log.write_bytes(b"1" * 5000 + b"23")
    back.carrier.fetch([job.folder])
    assert (job.here / log.name).read_bytes() == b"0" * 5000 + b"23"

    log.unlink()
    log.write_bytes(b"anew")
    back.carrier.fetch([job.folder])
    assert (job.here / log.name).read_bytes() == b"anew"


def test_what_the_service_alone_writes_is_not_brought_from_a_job(tmp_path: Path) -> None:
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    written = (job.here / SPEC).read_bytes()
    for name in (*NOT_TOLD, ".hidden"):
        (job.there / name).write_text("forged")
    job.report()

    nodes.carrier.fetch([job.folder])

    assert {path.name for path in job.here.iterdir()} == {SPEC, EVENTS}
    assert (job.here / SPEC).read_bytes() == written


def test_data_between_holes_is_brought_alone(tmp_path: Path) -> None:
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    with (job.saves / "sparse").open("wb") as out:
        for at in (0, MOST, 4 * MOST):
            out.seek(at)
            out.write(b"data")

    list(nodes.carrier.pull("n1", str(job.saved)))

    assert (job.saved / "sparse").read_bytes() == (job.saves / "sparse").read_bytes()
    assert sum(nodes.moved) < MOST


def test_at_most_half_of_a_disk_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, job = Nodes(tmp_path, "n1"), Attempt(tmp_path, "a")
    (job.saves / "weights").write_bytes(os.urandom(100_000))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=199_998))

    with pytest.raises(LeftOut, match=r"half of the 0\.0002 GB"):
        list(nodes.carrier.pull("n1", str(job.saved)))

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=200_002))
    list(nodes.carrier.pull("n1", str(job.saved)))
    assert (job.saved / "weights").stat().st_size == 100_000
