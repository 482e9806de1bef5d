"""Whole runs that once went wrong, each as people met it: simulated, or on a live scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import weft
from tests.scenarios.live import run_virtually
from weft.app.serve.live import Live, Settings
from weft.app.serve.rules import Quotas
from weft.core.model.job import Demand, Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.core.model.trace import Trace, Truth
from weft.runtime.deciding.waiting import waits_of, why_waits

HOUR = 3600.0


def job(name: str, gpus: int, hours: float | None = None, **fields: object) -> Job:
    hints = {} if hours is None else {"duration_s": hours * HOUR}
    demand = fields.pop("demand", Demand(gpus))
    return Job(JobId(name), demand=demand, hints=hints, launch=Launch(("sleep",)), **fields)  # type: ignore[arg-type]


def serve(policy: str, cluster: str, people: Callable[[Live], Awaitable[None]]) -> None:
    """People at a live scheduler, in virtual time."""

    async def whole(seconds: Callable[[], float]) -> None:
        engine = f"simulated:cluster={cluster},speed=1"
        live = Live(Settings(engine=engine, policy=policy, decide_in="service"), seconds)
        await live.open()
        try:
            await people(live)
        finally:
            await live.close()

    run_virtually(whole)


async def submit(live: Live, *jobs: Job) -> None:
    """Some jobs, two seconds apart."""
    for each in jobs:
        await live.driver.submit(each)
        await asyncio.sleep(2.0)


def states(live: Live) -> dict[str, str]:
    return {str(status.record.job.id): status.state for status in live.driver.jobs()}


def nodes_of(live: Live, name: str) -> list[str]:
    on = live.driver.ledger.jobs[JobId(name)].allocation
    return [] if on is None else [str(part.node) for part in on.slices]


@pytest.mark.parametrize(
    ("policy", "asked"),
    # Rubick guarantees a job the speed of what it asked for, and takes what it has beyond that.
    [("rubick", 2), *((policy, 4) for policy in ("sia", "arena", "elasticflow", "optimus"))],
)
def test_an_elastic_job_that_never_reports_makes_room_for_a_short_one(
    policy: str, asked: int
) -> None:
    x = Job(JobId("x"), 0.0, Demand(asked, 1, 4))
    y = Job(JobId("y"), 5_000.0, Demand(2, 1, 4))
    trace = Trace("two", ((x, Truth(20_000.0)), (y, Truth(1_000.0))))

    outcome = weft.simulate(trace, policy, "1x4:v100").outcomes[policy][0]

    assert outcome.per_job.start_s[1] <= 5_600.0
    assert outcome.per_job.restarts[0] <= 3


@pytest.mark.parametrize("policy", ["weft", "srtf", "las", "fifo"])
@pytest.mark.parametrize(
    ("cluster", "hours", "gpus"), [("1x4:cpu", None, 4), ("2x8:a100", 10.0, 16)]
)
def test_an_opportunistic_job_runs_beside_a_larger_one_that_waits(
    policy: str, cluster: str, hours: float | None, gpus: int
) -> None:
    async def people(live: Live) -> None:
        loose = job("opp", 1, hours, priority=-1.0, tier=Tier.OPPORTUNISTIC)
        await submit(live, job("hold", 1, hours), job("big", gpus, hours), loose)
        await asyncio.sleep(5.0)
        assert states(live)["opp"] == "running"

        await submit(live, job("normal", 1, hours))
        await asyncio.sleep(5.0)
        if policy == "fifo":  # a strict queue: and it says so
            record = live.driver.ledger.jobs[JobId("normal")]
            why = why_waits(waits_of(live.driver), live.driver.scheduler, record)
            assert why is not None
            assert "a job that does not fit keeps those behind it waiting" in why.text
        else:
            assert states(live)["normal"] == "running"

    serve(policy, cluster, people)


@pytest.mark.parametrize("policy", ["weft", "srtf", "fifo:backfill=true", "las"])
def test_a_later_job_leaves_what_an_earlier_gang_waits_for(policy: str) -> None:
    """While an array ends on the T4s that a gang waits for, another job has idle A100s."""

    async def people(live: Live) -> None:
        t4 = {"demand": Demand(1, kinds=("t4",))}
        array = [job(f"array{i}", 1, (1 + i) / 10, app="array", **t4) for i in range(4)]
        await submit(live, *array)
        gang = job("gang", 4, 1.0, demand=Demand(4, kinds=("t4",)), preemptible=False)
        await submit(live, gang)
        await asyncio.sleep(0.15 * HOUR)  # one T4 is free
        await submit(live, job("later", 1, 10.0, preemptible=False))

        assert nodes_of(live, "later") == ["a100-2"]
        await asyncio.sleep(0.4 * HOUR)
        assert states(live)["gang"] == "running"

    serve(policy, "2x2:t4+1x2:a100", people)


def test_a_reclaim_stops_one_job_where_one_is_enough() -> None:
    """No equal job takes the place of one that gave way, and that one says to whom it did."""

    async def people(live: Live) -> None:
        own = {"vision": 16.0, "nlp": 16.0}
        await live.set_quotas(Quotas(limits={"vision": 20.0}, own=own, min_run_s=120.0))
        await submit(live, *(job(f"v{i}", 4, 10.0, tenant="vision") for i in range(1, 8)))
        await asyncio.sleep(600.0)
        before = states(live)
        assert [name for name, state in before.items() if state == "running"] == [
            f"v{i}" for i in range(1, 6)
        ]

        await submit(live, *(job(f"n{i}", 4, 10.0, tenant="nlp") for i in range(1, 6)))
        await asyncio.sleep(HOUR)

        after = states(live)
        stopped = [name for name, state in after.items() if state == "preempted"]
        assert len(stopped) == 1
        assert [after[name] for name in ("v6", "v7", "n5")] == ["pending"] * 3
        assert [after[f"n{i}"] for i in range(1, 5)] == ["running"] * 4
        record = live.driver.ledger.jobs[JobId(stopped[0])]
        assert record.starts == 1
        why = why_waits(waits_of(live.driver), live.driver.scheduler, record)
        assert why is not None
        assert "gave way" in why.text
        assert "nlp" in why.text

    serve("weft", "4x8:a100", people)


@pytest.mark.parametrize(("own", "due_h"), [(16.0, 16.0), (28.0, 28.0)])
def test_what_tenants_are_entitled_to_counts_what_is_their_own(own: float, due_h: float) -> None:
    async def people(live: Live) -> None:
        await live.set_quotas(Quotas(own={"vision": own, "nlp": 32.0 - own}, min_run_s=120.0))
        both = [job(name, 8, 10.0, tenant=name.rstrip("1234")) for name in NAMES]
        for each in both:
            await live.driver.submit(each)
        used = live.driver.ledger.used(live.driver.now)["vision"].entitled_s
        await asyncio.sleep(HOUR)

        due_s = live.driver.ledger.used(live.driver.now)["vision"].entitled_s - used
        assert due_s / HOUR == pytest.approx(due_h, abs=0.1)

    serve("weft", "4x8:a100", people)


NAMES = [f"{tenant}{i}" for tenant in ("vision", "nlp") for i in range(1, 5)]
