"""Which jobs that wait for memory, or are slower than promised, need a person."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from weft.core.knowledge.measured import MeasuredAttempt, MemoryWait, Sees
from weft.core.model.job import Job, JobId
from weft.runtime.records.job_records import JobRecord
from weft.service.needs_reader import LONG_S, describe_slowed, memory_texts

NOW = 1000.0


def test_jobs_that_wait_long_for_memory_are_named_where_the_engine_sees_it() -> None:
    since = {"long": NOW - LONG_S, "short": NOW - LONG_S + 1.0}
    running = [JobRecord(Job(JobId(name)), 0.0) for name in ("long", "short", "none")]
    running = [replace(record, running=1) for record in running]

    def measured(job: str, _: int) -> MeasuredAttempt:
        wait = MemoryWait(70.0, since[job], {}) if job in since else None
        return MeasuredAttempt(at=NOW, waits=wait)

    engine: Any = SimpleNamespace(sees={Sees.WAITS}, measured=measured)
    blind: Any = SimpleNamespace(sees=set())

    assert memory_texts(engine, running, NOW) == {"long": "waits for 70 GB of GPU memory for 60 s"}
    assert memory_texts(blind, running, NOW) == {}


def test_jobs_that_are_slower_for_long_than_promised_are_named() -> None:
    broken = {"kept": LONG_S - 1.0, "broken": LONG_S}
    programs: Any = SimpleNamespace(
        promise=lambda job: 1.5 if job.id in broken else None,
        broken_s=lambda job: broken.get(job.id, 1e6),
    )
    running = [JobRecord(Job(JobId(name)), 0.0) for name in ("kept", "broken", "any")]

    (text,) = describe_slowed(programs, running).items()

    assert text == (
        "broken",
        "was more than 1.5 times as slow as alone, which it was promised not to be, for 60 s",
    )
    assert describe_slowed(None, running) == {}
