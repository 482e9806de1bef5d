"""Streams that say they are still there, and what tenants are told of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from weft.core.events.event import Decided, Event, PolicyChanged, Submitted
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.core.spec.part_spec import PartSpec
from weft.service.access.tokens import ANYBODY, Caller, TokenFile
from weft.service.routes.cluster.events import while_allowed
from weft.service.routes.jobs.logs import read_at
from weft.service.streams.event_json import event_json

ON = Allocation((Slice(NodeId("n"), (0,)),))
MINE = Job(JobId("mine"), tenant="a", launch=Launch(("x",), env={"KEY": "secret"}))
OTHER = Job(JobId("other"), tenant="b")


def driver() -> Any:
    records = {job.id: SimpleNamespace(job=job) for job in (MINE, OTHER)}
    return SimpleNamespace(ledger=SimpleNamespace(jobs=records))


def shown_to(who: Caller, event: Event) -> dict[str, Any] | None:
    return event_json(driver(), who, 7, 1.0, event)


def test_a_quiet_stream_beats_and_loses_nothing() -> None:
    heard: list[int | None] = []

    async def quiet() -> AsyncIterator[list[tuple[int, float, Event]]]:
        """Says nothing until the stream has beaten."""
        for number in (1, 2):
            while not heard or heard[-1] is not None:
                await asyncio.sleep(0.01)
            yield [(number, 0.0, PolicyChanged(PartSpec("fifo")))]

    async def read() -> None:
        async for row in while_allowed(TokenFile(None), ANYBODY, quiet(), 0.01):
            heard.append(None if row is None else row[0][0])  # noqa: PERF401 - read meanwhile

    asyncio.run(read())

    assert [number for number in heard if number is not None] == [1, 2]


def test_a_decision_is_told_in_part_and_a_strangers_job_not_at_all() -> None:
    event = Decided(1, {MINE.id: ON, OTHER.id: ON}, reasons={OTHER.id: "because"})
    ann = Caller("user", "a")

    part = shown_to(ann, event)

    assert part is not None
    assert list(part["changes"]) == ["mine"]
    assert "reasons" not in part
    assert shown_to(ann, Submitted(OTHER)) is None
    whole = shown_to(Caller("viewer", "*"), event)
    assert whole is not None
    assert set(whole["changes"]) == {"mine", "other"}


def test_variables_and_quotas_are_kept_back() -> None:
    own = shown_to(Caller("user", "a"), Submitted(MINE))
    assert own is not None
    assert "env" not in own["job"]["launch"]
    las = PartSpec("las", {"by": "time"})
    around = las.inside(PartSpec("quota", {"limits": {"b": 3.0}}), PartSpec("no_preempt"))

    rules = shown_to(Caller("user", "a"), PolicyChanged(around))

    fields = {"name": "las", "params": {"by": "time"}}
    assert rules == {"seq": 7, "at": 1.0, "event": "PolicyChanged", "policy": fields}


def test_a_log_that_was_put_aside_is_read_before_the_new_one(tmp_path: Any) -> None:
    path = tmp_path / "rank0.log"
    (tmp_path / "rank0.log.1").write_bytes(b"old ")
    path.write_bytes(b"new")

    assert read_at(path, 0) + read_at(path, 4) == b"old new"
    assert read_at(path, 5) == b"ew"
    assert read_at(path, 7) == b""
    assert read_at(tmp_path / "none.log", 0) == b""
