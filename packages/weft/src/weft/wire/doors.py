"""The way of a service into an attempt on another node: through a door that its agent opens.

The service leaves a request with a secret in the folder of a part; the agent there opens a port
and writes down where. Both prove over an encrypted connection that they know the secret, bound to
that very connection, so that no one in between can pass a proof on. Then the service says in a
line what it wants, is answered in a line, and bytes go both ways.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

from weft.base.errors import WireError
from weft.wire.attempt import SHELLS, TAG, TERMINAL, short_path
from weft.wire.processes import descendants, find_port, find_tagged, user_of

REQUEST, DOOR = "session.json", "door.json"
DOOR_ADDRESS = "WEFT_DOOR_ADDRESS"  # how the service reaches a node whose name it may not know
OPEN = "open"  # the answer that lets one in; any other is why not
CALLER, KEEPER = b"caller", b"keeper"
CIPHERS = "AECDH-AES256-SHA:@SECLEVEL=0"  # no certificates: the secret is what both are known by
CHUNK = 1 << 16
LIMIT_S = 20.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def encryption(*, keeper: bool) -> ssl.SSLContext:
    """For one side of a connection; it says nothing of who the other is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if keeper else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # The last version whose connections have a name of their own that proofs can be bound to.
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    return context


async def prove(streams: Streams, secret: str, me: bytes) -> None:
    """Both know `secret`, or WireError. `me` is which side this is."""
    reader, writer = streams
    channel = writer.get_extra_info("ssl_object").get_channel_binding("tls-unique")
    other = KEEPER if me == CALLER else CALLER
    writer.write(_proof(secret, me, channel))
    try:
        async with asyncio.timeout(LIMIT_S):
            await writer.drain()
            shown = await reader.readexactly(32)
    except (OSError, EOFError, TimeoutError) as error:
        raise WireError(f"the peer does not identify itself: {error!r}") from error
    if not hmac.compare_digest(shown, _proof(secret, other, channel)):
        raise WireError("the peer does not know the secret")


def _proof(secret: str, who: bytes, channel: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(secret), who + channel, "sha256")


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Every byte, until there are no more."""
    with suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


async def find_inside(folder: Path, wish: str, roots: Sequence[int]) -> Streams | str:
    """Streams of `terminal`, `shell` or `port N` in an attempt of this machine; else why not.

    Ports are those of `roots`, of processes below them and of all that have the attempt's name and
    are of their users: anyone on the machine can give a process of his own that name.
    """
    what, _, port = wish.partition(" ")
    if what == "port":
        at = await asyncio.to_thread(lambda: find_port(_processes(folder, roots), int(port)))
        return await asyncio.open_connection(*at) if at else "nothing listens there"
    name = {"shell": SHELLS, "terminal": TERMINAL}.get(what)
    path = Path(short_path(folder / name)) if name else None
    if path is None or not path.is_socket():
        return "there is none"
    return await asyncio.open_unix_connection(str(path))


def _processes(folder: Path, roots: Sequence[int]) -> set[int]:
    below = {child for pid in roots for child in descendants(pid)}
    users = {user_of(pid) for pid in roots} - {None}
    named = {pid for pid in find_tagged(TAG, str(folder)) if user_of(pid) in users}
    return {*roots, *below, *named} - {os.getpid()}


def is_secret(value: object) -> TypeGuard[str]:
    """True if it can be a secret: a job, too, may write where requests are left."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def public_name(secret: str) -> str:
    """The name of a secret where others read."""
    return hmac.digest(bytes.fromhex(secret), b"name", "sha256").hex()[:16]
