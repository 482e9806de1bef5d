"""The head of a Ray cluster of our own: begun where none runs, found again after a restart.

It goes on when the service ends, as jobs do.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.core.errors import EngineError
from weft.engines.attempts.spawn import reap, spawn_command
from weft.engines.ray.starting import (
    NodeSetup,
    find_address,
    head_command,
    ray_environment,
)
from weft.engines.ray.token import make_token
from weft.frozen import frozen
from weft.wire.attempt import read_json, write_whole
from weft.wire.processes import alive, find_tagged, kill_all, start_time

HEAD, TOKEN, LOG = "ray-head.json", "ray-token", "ray-head.log"
TAG = "WEFT_RAY_HEAD"  # in the environment of all its processes
BEGIN_S, END_S = 120.0, 10.0
PAUSE_S = 0.2


@frozen
class Head:
    """A head that runs: where, its process, and the file with the token that it asks for."""

    address: str
    pid: int
    token: Path


async def need_head(state: Path, setup: NodeSetup) -> Head:
    """The head that this service began before, or a new one; EngineError if none can be begun."""
    head = find_head(state)
    if head is not None:
        return head
    setup = replace(
        setup,
        ip=setup.ip or find_address(),
        port=setup.port or _free_port(),
        leave_s=0.0,  # no service could take its jobs over
    )
    token = make_token(state / TOKEN)
    address = f"{setup.ip}:{setup.port}"
    if _answers(address):
        raise EngineError(
            f"another process listens at {address} already, the address of Ray's head",
            hint=f"is it a Ray? --engine ray:address={address} uses it; "
            "or choose another port with --engine ray:port=NUMBER",
        )
    log = state / LOG
    env = {**os.environ, **ray_environment(token, setup)}
    tag = secrets.token_hex(8)
    pid = spawn_command(head_command(setup), log, {**env, TAG: tag})
    try:
        await _wait_for(address, pid, log)
    except BaseException:  # also if the client has disconnected: it would hold the port
        _end(pid, tag)
        raise
    write_whole(state / HEAD, {"address": address, "pid": pid, "began": start_time(pid)})
    return Head(address, pid, token)


def find_head(state: Path) -> Head | None:
    """The head that was begun from this folder, if it still runs."""
    body: dict[str, Any] | None = read_json(state / HEAD)
    if body is None or not alive(int(body["pid"]), int(body["began"])):
        return None
    return Head(str(body["address"]), int(body["pid"]), state / TOKEN)


async def _wait_for(address: str, pid: int, log: Path) -> None:
    until = time.monotonic() + BEGIN_S
    while not _answers(address):
        ended = reap(pid)
        if ended or time.monotonic() > until:
            how = "ended" if ended else f"did not begin within {BEGIN_S:g} s"
            raise EngineError(
                f"the head of Ray {how}; its last output: {_tail(log)}; its log is {log}",
                hint="is --engine ray:ip=ADDRESS one of this machine, and its port free?",
            )
        await asyncio.sleep(PAUSE_S)


def _end(pid: int, tag: str) -> None:
    """End a head that did not begin, with whatever it started, also if it is gone itself."""
    until = time.monotonic() + END_S
    while (left := [*find_tagged(TAG, tag)]) and time.monotonic() < until:
        kill_all(left)
        reap(pid)
        time.sleep(PAUSE_S / 10)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "it said nothing"
