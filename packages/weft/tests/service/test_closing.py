"""A service that is closing, as its clients hear of it."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI

from weft.runtime.loop.driver import CLOSING
from weft.service.http.replies import install


def test_what_is_closing_says_when_to_ask_again() -> None:
    app = FastAPI()
    install(app)

    @app.get("/")
    async def close() -> None:
        raise CLOSING

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://weft") as client:
            return await client.get("/")

    answer = asyncio.run(ask())

    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
