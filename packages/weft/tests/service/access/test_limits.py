"""What one tenant may ask of the service."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.clock import Clock
from tests.refused import refused

from weft.app.serve.rules import TenantLimits, read_limits
from weft.core.errors import InvalidConfig
from weft.core.model.job import Demand, Job, JobId
from weft.service.access.rate_limit import (
    AT_ONCE,
    Buckets,
    LimitRate,
    RequestTurns,
    Streams,
    check_jobs,
)
from weft.service.access.tokens import ANYBODY, Caller
from weft.service.http.connections import most_connections
from weft.service.http.replies import HttpProblem

ANN, BEN = Caller("user", "a"), Caller("user", "b")


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    clock = Clock(100.0)
    buckets = Buckets(10.0, 5.0, clock)

    first = [buckets.wait_s("a") for _ in range(7)]
    clock.now += 0.15
    later = [buckets.wait_s("a") for _ in range(2)]

    assert first == [0.0] * 5 + [pytest.approx(0.1)] * 2
    assert later == [0.0, pytest.approx(0.05)]
    assert buckets.refused == {"a": 3}


def test_long_answers_count_as_several_requests() -> None:
    clock = Clock(100.0)
    buckets = Buckets(10.0, 5.0, clock)
    buckets.wait_s("a")
    buckets.charge("a", 13.0)

    clock.now += 0.9
    early = buckets.wait_s("a")
    clock.now += 0.2

    assert early > 0.0
    assert buckets.wait_s("a") == 0.0


def test_one_tenant_uses_up_nothing_of_anothers() -> None:
    buckets = Buckets(1.0, 2.0, Clock(100.0))
    for _ in range(50):
        buckets.wait_s("a")

    assert buckets.wait_s("b") == 0.0


def test_a_rate_of_nothing_is_no_limit() -> None:
    buckets = Buckets(0.0, 1.0, Clock(100.0))

    assert {buckets.wait_s("a") for _ in range(1000)} == {0.0}


def test_streams_are_counted_by_tenant_and_admins_are_not_limited() -> None:
    streams = Streams(2.0)
    streams.open["a"] = 2

    with pytest.raises(HttpProblem, match="2 open streams") as raised:
        streams.response(ANN, iter_nothing(), "text/plain")

    assert (raised.value.status, raised.value.retry_s) == (429, 5.0)
    streams.response(BEN, iter_nothing(), "text/plain")
    streams.response(ANYBODY, iter_nothing(), "text/plain")


async def iter_nothing() -> AsyncIterator[str]:
    nothing: list[str] = []
    for text in nothing:
        yield text


def test_jobs_that_have_not_ended_and_sizes_are_limited() -> None:
    limits = TenantLimits(jobs=10.0, gpus=4.0)
    job = Job(JobId("j"), demand=Demand(2), tenant="a")

    check_jobs(limits, [job], 9, ANN)
    check_jobs(limits, [job], 99, ANYBODY)
    with pytest.raises(HttpProblem, match="10 jobs that have not ended") as full:
        check_jobs(limits, [job], 10, ANN)
    with pytest.raises(HttpProblem, match="may ask for 4 GPUs, this one asks for 8") as large:
        check_jobs(limits, [Job(JobId("k"), demand=Demand(8))], 0, ANN)

    with pytest.raises(HttpProblem, match="has 8 jobs that have not ended, 3 more are too many"):
        check_jobs(limits, [job] * 3, 8, ANN)

    assert (full.value.status, large.value.status, large.value.field) == (429, 422, "gpus")


def test_limits_are_read_by_name() -> None:
    assert read_limits(["rate=5", "jobs=0"]) == TenantLimits(rate=5.0, jobs=0.0)


@refused(
    InvalidConfig,
    {
        "rat=5": "did you mean 'rate'",
        "rate": "not NAME=NUMBER",
        "rate=x": "'x' is not a number",
        "rate=-1": "out of range",
        "rate=nan": "out of range",
    },
)
def test_a_limit_that_cannot_be_read_is_named(text: str) -> None:
    read_limits([text])


def test_connections_leave_files_for_the_rest() -> None:
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert 0 < most_connections(TenantLimits(connections=0.0)) < max(files, 1 << 62)
    assert most_connections(TenantLimits(connections=7.0)) == 7


# ---- many at once


class Slow:
    """Answers when it is told to; who is worked on, and in which order they came."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = scope["path"].removeprefix("/")
        self.order.append(who)
        self.now[who] += 1
        self.most[who] = max(self.most[who], self.now[who])
        await self.go_on.wait()
        self.now[who] -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def test_of_a_tenant_that_floods_a_few_are_worked_on_and_nobody_queues_behind_it() -> None:
    async def life() -> Slow:
        slow = Slow()
        buckets = Buckets(0.0, 1.0)
        asks = lambda scope: Caller("user", scope["who"])  # noqa: E731 - as short as it is
        limited = LimitRate(RequestTurns(slow, buckets), buckets, asks)

        async def ask(who: str) -> None:
            scope = {"type": "http", "path": f"/{who}", "headers": [(b"who", who.encode())]}
            await limited(scope, _nothing, _forget)

        flood = [asyncio.create_task(ask("flood")) for _ in range(100)]
        await asyncio.sleep(0)
        others = [asyncio.create_task(ask(f"other{i}")) for i in range(3)]
        await asyncio.sleep(0)
        slow.go_on.set()
        await asyncio.gather(*flood, *others)
        return slow

    slow = asyncio.run(life())

    assert slow.most["flood"] == AT_ONCE
    assert slow.order[: AT_ONCE + 3] == ["flood"] * AT_ONCE + ["other0", "other1", "other2"]
    assert slow.order.count("flood") == 100


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _forget(message: Message) -> None:
    """Nobody reads it."""
