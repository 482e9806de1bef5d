"""The socket that a service listens on, and what is ready before it is told."""

from __future__ import annotations

import asyncio
import socket

from fastapi.routing import APIRoute

from weft.app.serve.live import Settings
from weft.service.main import _listen, create_app


def test_every_part_of_an_answer_is_sent_at_once() -> None:
    """Without TCP_NODELAY each answer waited for the client's delayed acknowledgement."""

    async def accepted() -> int:
        option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held = writer.get_extra_info("socket")
            option.set_result(held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = _listen("127.0.0.1", 0)
        server = await asyncio.start_server(serve, sock=listening)
        async with server:
            _, client = await asyncio.open_connection(*listening.getsockname())
            nodelay = await option
            client.close()
            return nodelay

    assert asyncio.run(accepted()) != 0


def test_routes_are_built_before_the_first_request_and_only_once() -> None:
    first, second = (create_app(Settings(engine="simulated")).router.routes for _ in range(2))

    assert [id(route) for route in first] == [id(route) for route in second]
    assert len([route for route in first if isinstance(route, APIRoute)]) > 50
