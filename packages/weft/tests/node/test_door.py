"""Who is let in through an agent's door, and what a caller may believe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.waiting import LIMIT_S

from weft.base.errors import WireError
from weft.node.sessions.shells import Door, ShellStarter
from weft.wire.attempt import SHELLS, read_json
from weft.wire.doors import (
    CALLER,
    DOOR,
    KEEPER,
    OPEN,
    REQUEST,
    Streams,
    encryption,
    pass_on,
    prove,
    public_name,
)

SECRET, OTHER = "ab" * 32, "cd" * 32
Visit = Callable[[str, int], Awaitable[None]]


def with_a_door(folder: Path, visit: Visit) -> None:
    async def shell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"a shell")
        writer.close()

    async def run() -> None:
        shells = await asyncio.start_unix_server(shell, str(folder / SHELLS))
        keeping = asyncio.ensure_future(Door(folder, os.getpid(), SECRET).serve("127.0.0.1"))
        async with asyncio.timeout(LIMIT_S):
            while (door := read_json(folder / DOOR)) is None:
                await asyncio.sleep(0.01)
            assert door["secret"] == public_name(SECRET)
            await visit(*door["at"])
        shells.close()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    asyncio.run(run())


async def knock(host: str, port: int) -> Streams:
    context = encryption(keeper=False)
    return await asyncio.open_connection(host, port, ssl=context, server_hostname="")


@pytest.mark.parametrize(
    ("wish", "answer"),
    [(b"shell", OPEN), (b"terminal", "there is none"), (b"anything", "there is none")],
)
def test_who_knows_the_secret_is_led_to_what_there_is(
    wish: bytes, answer: str, tmp_path: Path
) -> None:
    async def visit(host: str, port: int) -> None:
        reader, writer = await knock(host, port)
        await prove((reader, writer), SECRET, CALLER)
        writer.write(wish + b"\n")
        assert (await reader.readline()).decode().strip() == answer
        assert await reader.read() == (b"a shell" if answer == OPEN else b"")
        writer.close()

    with_a_door(tmp_path, visit)


def test_who_does_not_know_the_secret_gets_nothing_but_a_proof(tmp_path: Path) -> None:
    async def visit(host: str, port: int) -> None:
        reader, writer = await knock(host, port)
        with pytest.raises(WireError, match="does not know the secret"):
            await prove((reader, writer), OTHER, CALLER)
        writer.write(b"shell\n")
        assert await reader.read() == b""
        writer.close()

    with_a_door(tmp_path, visit)


def test_nobody_in_between_passes_proofs_on(tmp_path: Path) -> None:
    async def visit(host: str, port: int) -> None:
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await knock(host, port)
            ways = (pass_on(reader, there[1]), pass_on(there[0], writer))
            await asyncio.gather(*ways)
            there[1].close()
            writer.close()

        context = encryption(keeper=True)
        between = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
        streams = await knock(*between.sockets[0].getsockname())
        with pytest.raises(WireError):
            await prove(streams, SECRET, CALLER)
        streams[1].close()
        between.close()

    with_a_door(tmp_path, visit)


def test_a_keeper_shows_himself_as_one(tmp_path: Path) -> None:
    async def visit(host: str, port: int) -> None:
        reader, writer = await knock(host, port)
        with pytest.raises(WireError):  # a proof that is sent back is not one
            await prove((reader, writer), SECRET, KEEPER)
        writer.close()

    with_a_door(tmp_path, visit)


@pytest.mark.parametrize(
    "request_text", ["{", "[]", "{}", '{"secret": 5}', '{"secret": ""}', '{"secret": "no hex"}']
)
def test_a_request_that_is_spoilt_opens_no_door(tmp_path: Path, request_text: str) -> None:
    keeper = ShellStarter(tmp_path)
    keeper._secret = SECRET  # one was asked for before
    (tmp_path / REQUEST).write_text(request_text)

    keeper.poll()

    assert keeper.pids() == []
