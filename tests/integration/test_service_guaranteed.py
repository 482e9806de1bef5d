"""Jobs that choose first are granted by an admin, in GPUs, to a tenant."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.serving import STILL, bearer, serving, token

API = "/api/v1"


class World:
    """An admin, and a user of tenant `a`."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        admin = token(client, "admin")
        self._tokens = {"admin": admin, "ann": token(client, "user", "a", admin)}

    def ask(self, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = bearer(self._tokens[who])
        return self._client.request(method, API + path, headers=headers, json=body)

    def submit(self, who: str, **body: Any) -> httpx.Response:
        return self.ask(who, "POST", "/jobs", {"priority": "guaranteed", **body})

    def grant(self, gpus: float) -> None:
        answer = self.ask("admin", "PUT", "/quotas", {"guaranteed": {"a": gpus}})
        assert answer.json()["guaranteed"] == {"a": gpus}


@pytest.fixture
def world() -> Iterator[World]:
    with serving(STILL) as client:
        yield World(client)


def test_nobody_grants_it_to_himself(world: World) -> None:
    refused = world.submit("ann", gpus=1)

    assert refused.status_code == 403
    assert refused.json()["field"] == "priority"
    assert "0 GPUs for guaranteed jobs" in refused.json()["error"]
    assert "weft quota set" in refused.json()["hint"]
    assert world.submit("ann", gpus=1, priority="normal").status_code == 201
    assert world.submit("admin", gpus=1, tenant="a").status_code == 201


def test_a_grant_is_counted_in_gpus_of_active_jobs(world: World) -> None:
    world.grant(4)
    first = world.submit("ann", gpus={"min": 1, "max": 3}, id="elastic")
    assert first.status_code == 201

    assert "ask for 3, this one for 2 more" in world.submit("ann", gpus=2).json()["error"]
    assert world.submit("ann", gpus=1).status_code == 201

    assert world.ask("ann", "DELETE", "/jobs/elastic").status_code == 202
    assert world.submit("ann", gpus=3).status_code == 201


def test_the_same_job_handed_in_again_is_the_same(world: World) -> None:
    world.grant(1)

    answers = [world.submit("ann", gpus=1, id="once") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]


def test_many_at_once_do_not_slip_through(world: World) -> None:
    world.grant(3)

    with ThreadPoolExecutor(12) as threads:
        codes = list(threads.map(lambda _: world.submit("ann", gpus=1).status_code, range(12)))

    assert sorted(codes) == [201] * 3 + [403] * 9
