"""Who has not the token of a cluster of Ray is no part of it; what is no token is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clusters.ray import why_not
from tests.waiting import LIMIT_S, wait_until
from weft.core.errors import InvalidConfig
from weft.engines.machine.job_environment import select_allowed
from weft.engines.ray.starting import (
    LONGEST,
    NodeSetup,
    check_token,
    make_token,
    need_head,
    ray_environment,
    read_token,
    write_token,
)
from weft.wire.processes import start_time

PORT = 26411
ODD = {
    "no text": b"\xff\xfe\x00",
    "two lines": b"a\nb",
    "a header": b"a\r\nx-role: admin",
    "far too long": b"x" * (LONGEST + 1),
    "endless": b"x" * 1_000_000,
    "a NUL": b"a\0b",
}


def join(token: bytes, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`weft join` of a head that is not there: what is wrong with a token is said before."""
    command = [sys.executable, "-m", "weft", "join", "127.0.0.1:9", "--no-unit", *options]
    env = {**os.environ, "HOME": str(home)}
    done = subprocess.run(command, input=token, env=env, capture_output=True)
    return subprocess.CompletedProcess(command, done.returncode, "", done.stderr.decode())


@pytest.mark.parametrize("what", ["no text", "endless"])
def test_joining_with_what_is_no_token_is_refused_in_words(what: str, tmp_path: Path) -> None:
    done = join(ODD[what], tmp_path)

    assert done.returncode == 2
    assert "not the token of a cluster" in done.stderr
    assert not [*tmp_path.rglob("ray-token*")]


@pytest.mark.parametrize("what", ODD)
def test_a_file_of_what_is_no_token_is_refused_and_replaced_by_a_head(
    what: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_bytes(ODD[what])

    with pytest.raises(InvalidConfig, match="not the token"):
        read_token(path)
    make_token(path)

    assert len(read_token(path)) == 64


@given(st.binary(max_size=60))
def test_whatever_is_taken_for_a_token_is_one_word(text: bytes) -> None:
    try:
        token = check_token(text)
    except InvalidConfig:
        return

    assert token.isascii()
    assert token.isprintable()
    assert len(token.split()) == 1


def test_a_token_is_its_owners_alone_whatever_was_there_before(tmp_path: Path) -> None:
    """A file that all may read, and a link to somebody else's."""
    path, other = tmp_path / "token", tmp_path / "other"
    path.write_text("old")
    path.chmod(0o644)
    write_token(path, "new")
    other.write_text("untouched")
    link = tmp_path / "link"
    link.symlink_to(other)
    write_token(link, "new")
    kept = tmp_path / "kept"
    kept.write_text("readable")
    kept.chmod(0o644)
    make_token(kept)

    assert [p.stat().st_mode & 0o777 for p in (path, link, kept)] == [0o600] * 3
    assert other.read_text() == "untouched"
    assert kept.read_text() == "readable"


def test_jobs_are_not_told_where_the_token_lies(tmp_path: Path) -> None:
    variables = select_allowed({**ray_environment(tmp_path / "token"), "PATH": "/bin"})

    assert not [name for name, value in variables.items() if "token" in (name + value).lower()]


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.usefixtures("ray_network")
def test_who_has_another_token_is_no_node_and_asks_nothing(tmp_path: Path) -> None:
    setup = NodeSetup("h1", slots=1, cpus=1, ip="127.0.0.1", port=PORT)
    head = asyncio.run(need_head(tmp_path, setup))
    wrong = tmp_path / "wrong"
    write_token(wrong, "0" * 64)
    address = f"127.0.0.1:{PORT}"
    try:
        command = [sys.executable, "-m", "weft", "join", address, "--no-unit", "--name", "n2"]
        command += ["--ip", "127.0.0.1", "--token-file", str(wrong)]
        joining = subprocess.run(command, capture_output=True, text=True)
        listed = {}
        for who, token in (("stranger", wrong), ("nobody", None), ("ours", head.token)):
            ask = [sys.executable, "-m", "weft.engines.ray.listed", address, "h1"]
            env = {**os.environ, **ray_environment(token)}
            asking = subprocess.Popen(ask, env=env, stderr=subprocess.DEVNULL)
            try:
                listed[who] = asking.wait(20 if who != "ours" else LIMIT_S)
            except subprocess.TimeoutExpired:
                asking.kill()
                listed[who] = asking.wait()

        assert joining.returncode == 1
        assert "is a node of" not in joining.stdout
        assert "n2 is not in the cluster" in joining.stderr
        assert listed["ours"] == 0
        assert listed["stranger"] != 0
        assert listed["nobody"] != 0
    finally:
        os.kill(head.pid, signal.SIGTERM)
        wait_until(lambda: start_time(head.pid) is None, "the head ended")
