"""Words for a running job that waits for memory of its GPU."""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.knowledge.measured import MemoryWait
from weft.core.model.job import JobId
from weft.runtime.loop.driver import Driver
from weft.runtime.records.idle_jobs import find_memory_wait, is_unguarded
from weft.runtime.records.job_records import JobRecord

SHOWN = 3
UNGUARDED = (
    "its GPU memory cannot wait for others' to be free, because no library can be loaded into its "
    "program: an allocation that does not fit fails"
)
NONE_KNOWN: Mapping[str, float] = {}


def words_for_wait(driver: Driver, record: JobRecord) -> str:
    """Return words for a job that waits for memory; empty for others."""
    wait = find_memory_wait(driver.engine, record)
    if wait is None:
        return ""
    return describe_wait(wait, record.job.id, driver.now, _seconds_left(driver, wait))


def words_if_unguarded(driver: Driver, record: JobRecord) -> str:
    """Return words for a job that holds memory and cannot wait for more; empty for others."""
    return UNGUARDED if is_unguarded(driver.engine, record) else ""


def describe_wait(
    wait: MemoryWait, job: JobId, now: float, left_s: Mapping[str, float] = NONE_KNOWN
) -> str:
    """Return the memory it waits for, for how long, the largest holders, and when it is free.

    `left_s` are the seconds to the end of jobs, where that is known.
    """
    others = sorted(((gb, other) for other, gb in wait.held.items() if other != job), reverse=True)
    holders = ", ".join(f"{other} holds {gb:.3g} GB" for gb, other in others[:SHOWN])
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    text = f"waits for {wait.gb:.3g} GB of GPU memory for {max(now - wait.since, 0.0):.0f} s"
    waits_free_s = [_seconds_until_free(each, left_s) for each in (wait, *wait.others)]
    known = [free_s for free_s in waits_free_s if free_s is not None]
    free_s = max(known) if len(known) == len(waits_free_s) else None  # it needs all of them
    free = "" if free_s is None else f"; likely free in {free_s:.0f} s"
    away = "; its own memory is in host memory meanwhile, for the others" if wait.away else ""
    return f"{text}: {holders}{more}{free}{away}" if holders else text + free + away


def _seconds_until_free(wait: MemoryWait, left_s: Mapping[str, float]) -> float | None:
    """Seconds until jobs end that hold what is missing; None where that is not known."""
    ends = sorted((left_s[other], gb) for other, gb in wait.held.items() if other in left_s)
    freed_gb = 0.0
    for end_s, gb in ends if wait.missing_gb else ():
        freed_gb += gb
        if wait.missing_gb is not None and freed_gb >= wait.missing_gb:
            return end_s
    return None


def _seconds_left(driver: Driver, wait: MemoryWait) -> dict[str, float]:
    """The seconds to the end of jobs that hold memory and do not wait for more."""
    left = {}
    for name in {name for each in (wait, *wait.others) for name in each.held}:
        record = driver.ledger.jobs.live.get(JobId(name))
        if record is None or find_memory_wait(driver.engine, record) is not None:
            continue
        if (left_s := record.report.left_s) is not None:
            left[name] = left_s
    return left
