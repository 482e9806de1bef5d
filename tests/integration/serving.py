"""A service in a thread of this process, on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx

from tests.waiting import LIMIT_S
from weft.app.serve.live import Settings
from weft.app.serve.rules import TenantLimits
from weft.service.main import serve_async

FAST = "simulated:cluster=2x4:a100+1x4:t4,speed=3600"
STILL = "simulated:cluster=2x4:a100+1x4:t4,speed=0.001"  # nothing ends while a test looks
API = "/api/v1"


class Running(threading.Thread):
    """Serves until `end`; what broke it is raised there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(daemon=True)
        self._settings = settings
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self.address = ""

    def begin(self) -> str:
        self.start()
        assert self._ready.wait(LIMIT_S)
        if self._error is not None:
            raise self._error
        return self.address

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._told.set)
        self.join(LIMIT_S)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # raised where somebody looks
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()
        await serve_async(self._settings, ready=self._heard, until=self._told.wait())

    def _heard(self, address: str) -> None:
        self.address = address
        self._ready.set()


@contextmanager
def serving(
    engine: str = STILL,
    state: Path | None = None,
    policy: str | None = None,
    limits: TenantLimits | None = None,
    decide_in: Literal["worker", "service"] = "service",
    verify_s: float | None = None,
) -> Iterator[httpx.Client]:
    """A client of a service; a `worker` that decides costs a second to start, so few have one."""
    settings = Settings(engine=engine, state=state, policy=policy, port=0, decide_in=decide_in)
    settings = replace(settings, limits=limits or TenantLimits(), verify_s=verify_s)
    service = Running(settings)
    address = service.begin()
    try:
        with httpx.Client(
            base_url=address, timeout=LIMIT_S, trust_env=False, verify=False
        ) as client:
            yield client
    finally:  # a test that failed must not leave a service with its jobs behind
        service.end()


def token(client: httpx.Client, role: str, tenant: str = "", by: str = "") -> str:
    """A new token, made with the token `by`."""
    body = {"role": role, "tenant": tenant, "name": f"{role} of {tenant}"}
    answer = client.post("/api/v1/tokens", json=body, headers=bearer(by))
    assert answer.status_code == 201, answer.text
    secret: str = answer.json()["token"]
    return secret


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def submit(client: httpx.Client, **fields: Any) -> str:
    answer = client.post(f"{API}/jobs", json=fields)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(API + path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def fetch(url: str) -> str:
    """A page that a job serves; empty while it does not."""
    try:
        return httpx.get(url, timeout=LIMIT_S, verify=False).raise_for_status().text
    except httpx.HTTPError:
        return ""
