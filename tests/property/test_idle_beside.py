"""Jobs that wait beside what they could use: looked at again, counted, told the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.scenarios.live import run_virtually
from tests.seeds import varied

from weft.app.serve.live import Live, Settings
from weft.core.model.job import After, Demand, Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.core.plan.about import Controls
from weft.core.plan.reasons import Blocker, Reason
from weft.core.spec.registry import build, names
from weft.runtime.deciding.waiting import waits_of, why_waits

Seconds = Callable[[], float]


def job(name: str, gpus: int, **fields: object) -> Job:
    launch = Launch(("true",))
    hints = {"duration_s": 30_000.0}
    return Job(JobId(name), demand=Demand(gpus), hints=hints, launch=launch, **fields)  # type: ignore[arg-type]


def reason_of(live: Live, name: str) -> Reason | None:
    driver = live.driver
    return why_waits(waits_of(driver), driver.scheduler, driver.ledger.jobs[JobId(name)])


def play(policy: str, people: Callable[[Live], object], cluster: str = "2x8:a100") -> None:
    async def whole(seconds: Seconds) -> None:
        engine = f"simulated:cluster={cluster},speed=1"
        live = Live(Settings(engine=engine, policy=policy, decide_in="service"), seconds)
        await live.open()
        try:
            await people(live)  # type: ignore[misc]
        finally:
            await live.close()

    run_virtually(whole)


def test_a_job_of_a_strict_queue_is_counted_and_told_that_the_policy_keeps_it_back() -> None:
    async def people(live: Live) -> None:
        for submitted in (job("hold", 1), job("big", 16), job("small", 1)):
            await live.driver.submit(submitted)
        await asyncio.sleep(20.0)
        assert live.idle_beside.counts == {}
        await asyncio.sleep(100.0)

        why = reason_of(live, "small")
        assert live.idle_beside.counts == {"turn": 1}
        assert live.idle_beside.looks == 1
        assert why is not None
        assert why.blocker is Blocker.TURN
        assert why.text == (
            "waits its turn; 1 GPU is free for it, but under policy 'fifo' a job that does not "
            "fit keeps those behind it waiting; looked at again when something changes; big "
            "came before it "
            "and waits for 16 GPUs"
        )

    play("fifo", people)


def test_the_log_names_them_once_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def people(live: Live) -> None:
        for submitted in (
            job("hold", 1),
            job("big", 16),
            *(job(f"small-{i}", 1) for i in range(9)),
        ):
            await live.driver.submit(submitted)
        await asyncio.sleep(300.0)

    play("fifo", people)

    assert [r.message for r in caplog.records if "beside" in r.message] == [
        "9 jobs have waited for a minute beside GPUs that are free for them, under policy 'fifo': "
        "small-0, small-1 and 7 more; `weft explain` says why"
    ]


def test_while_a_decision_is_made_nobody_is_said_to_be_kept_back() -> None:
    async def people(live: Live) -> None:
        for submitted in (job("hold", 1), job("big", 16), job("small", 1)):
            await live.driver.submit(submitted)
        live.driver.decisions.asking = True

        why = reason_of(live, "small")
        assert why is not None
        assert why.text == "waits for the decision that is being made; 1 GPU is free for it"
        await asyncio.sleep(100.0)
        assert live.idle_beside.counts == {"turn": 1}

    play("fifo", people)


def test_a_job_that_is_just_being_written_down_is_passed_over() -> None:
    async def people(live: Live) -> None:
        for submitted in (job("hold", 1), job("big", 16), job("small", 1)):
            await live.driver.submit(submitted)
        record = live.driver.ledger.jobs.live.pop(JobId("small"))
        await live.idle_beside.count()
        live.driver.ledger.jobs.live[JobId("small")] = record

    play("fifo", people)


ROUNDS = [name for name in names("policy") if build("policy", name).about.every is not None]


@pytest.mark.parametrize("policy", ROUNDS)
def test_the_first_jobs_of_a_service_do_not_wait_for_a_round(policy: str) -> None:
    """As requests are read: a job that comes after none, one of a sweep, one after another."""

    async def people(live: Live) -> None:
        await asyncio.sleep(7.0)
        await live.driver.submit(job("alone", 1, after=After()))
        await asyncio.sleep(7.0)
        await live.driver.submit(job("swept", 1, app="sweep", max_parallel=1))
        await live.driver.submit(job("last", 1, after=After(any=(JobId("alone"),))))
        await asyncio.sleep(7.0)
        assert live.driver.job(JobId("swept")).state == "running"

        await live.driver.cancel(JobId("alone"))
        await asyncio.sleep(7.0)
        assert live.driver.job(JobId("last")).state == "running"

    play(policy, people)


def test_who_waits_behind_a_higher_class_is_told_behind_whom() -> None:
    async def people(live: Live) -> None:
        hold = job("hold", 1, preemptible=False)
        for submitted in (hold, job("big", 16, priority=1.0), job("small", 1)):
            await live.driver.submit(submitted)
            await asyncio.sleep(2.0)
        await asyncio.sleep(100.0)

        why = reason_of(live, "small")
        assert why is not None
        assert why.text == "waits behind big, which has a higher priority and waits for 16 GPUs"
        assert live.idle_beside.counts == {}

    play("srtf", people)


def test_an_opportunistic_job_starts_beside_one_that_waits_for_more() -> None:
    async def people(live: Live) -> None:
        filler = job("opp", 1, priority=-1.0, tier=Tier.OPPORTUNISTIC)
        for submitted in (job("hold", 1), job("big", 16), filler, job("norm", 1)):
            await live.driver.submit(submitted)
        await asyncio.sleep(5.0)

        states = {status.record.job.id: status.state for status in live.driver.jobs()}
        assert states == {"hold": "running", "big": "pending", "opp": "running", "norm": "running"}

    for policy in ("weft", "srtf"):
        play(policy, people)


# Jobs have a home node there and take turns on it, as its About says: they may wait beside others'.
AT_HOME = ("gandiva_fair",)


@pytest.mark.parametrize(
    ("seed", "policy"), [each for each in enumerate(names("policy")) if each[1] not in AT_HOME]
)
def test_under_no_policy_an_opportunistic_job_waits_beside_what_it_could_use(
    seed: int, policy: str
) -> None:
    rng = np.random.default_rng(varied(seed))
    hold, *sizes = rng.integers(1, 4, 1 + int(rng.integers(1, 6))).tolist()

    async def people(live: Live) -> None:
        await live.driver.submit(job("hold", hold, preemptible=False))
        await live.driver.submit(job("big", 16))
        for number, gpus in enumerate(sizes):
            filler = job(f"opp{number}", gpus, priority=-1.0, tier=Tier.OPPORTUNISTIC)
            await live.driver.submit(filler)
            await asyncio.sleep(float(rng.uniform(0.0, 90.0)))
        await asyncio.sleep(120.0)

        idle = live.driver.scheduler.state.free.room()
        waits = [
            status.record.job for status in live.driver.jobs() if status.record.allocation is None
        ]
        assert not [wait.id for wait in waits if wait.demand.gpus <= idle]

    play(policy, people)


@pytest.mark.parametrize("policy", AT_HOME)
def test_a_policy_whose_jobs_wait_at_home_says_so(policy: str) -> None:
    assert build("policy", policy).about.idles


SIZED = [
    name
    for name in names("policy")
    if Controls.COUNT in (about := build("policy", name).about).controls and not about.idles
]


@pytest.mark.parametrize("policy", SIZED)
def test_who_can_grow_has_every_gpu_that_others_left(policy: str) -> None:
    """One of 1 to 4 GPUs goes on alone after two others went."""

    async def people(live: Live) -> None:
        for submitted in (
            job("a", 2),
            job("b", 2),
            replace(job("grows", 1), demand=Demand(1, 1, 4)),
        ):
            await live.driver.submit(submitted)
        await asyncio.sleep(60.0)
        for name in ("a", "b"):
            await live.driver.cancel(JobId(name))
        await asyncio.sleep(3600.0)

        on = live.driver.ledger.jobs[JobId("grows")].allocation
        assert on is not None
        assert on.gpus == 4

    play(policy, people, "1x4:v100")


def test_a_job_on_a_drained_gpu_goes_on_beside_it() -> None:
    async def people(live: Live) -> None:
        elastic = Job(
            JobId("e"), demand=Demand(4, 1, 4), launch=Launch(("true",)), hints={"duration_s": 9e4}
        )
        await live.driver.submit(elastic)
        await asyncio.sleep(5.0)
        await live.set_quotas(live.quotas.with_window("drain:v100-0:0", "v100-0:0"))
        await asyncio.sleep(10.0)

        (status,) = live.driver.jobs()
        assert status.state == "running"
        assert status.record.allocation is not None
        assert 0 not in status.record.allocation.slices[0].gpus

    play("weft", people, "1x4:v100")


def test_who_gave_way_is_not_told_that_a_drained_gpu_is_free_for_it() -> None:
    async def people(live: Live) -> None:
        await live.set_quotas(live.quotas.with_window("drain:v100-0:3", "v100-0:3"))
        await live.driver.submit(job("low", 1, priority=-1.0, tier=Tier.OPPORTUNISTIC))
        await asyncio.sleep(5.0)
        await live.driver.submit(job("high", 3, priority=1.0))
        await asyncio.sleep(5.0)

        why = reason_of(live, "low")
        assert why is not None
        assert why.text == "waits for 1 GPU; what is free is kept: drain:v100-0:3"

    play("singularity", people, "1x4:v100")


def test_reasons_under_former_rules_are_not_told_under_new_ones() -> None:
    async def people(live: Live) -> None:
        await live.set_quotas(replace(live.quotas, limits={"red": 3.0}))
        hold = job("hold", 3, tenant="red", preemptible=False)
        for submitted in (hold, job("more", 2, tenant="red"), job("other", 4, preemptible=False)):
            await live.driver.submit(submitted)
            await asyncio.sleep(5.0)
        before = reason_of(live, "more")
        await live.set_quotas(replace(live.quotas, limits={"red": 6.0}))
        await asyncio.sleep(5.0)

        after = reason_of(live, "more")
        assert before is not None
        assert after is not None
        assert (before.blocker, after.blocker) == (Blocker.QUOTA, Blocker.GPUS)

    play("srtf", people, "1x8:v100")


def test_what_fits_beside_a_drained_gpu_is_not_told_to_wait_for_it() -> None:
    async def people(live: Live) -> None:
        await live.set_quotas(
            replace(live.quotas, limits={"red": 3.0}).with_window("drain:v100-0:3", "v100-0:3")
        )
        await live.driver.submit(job("large", 8, tenant="red"))
        await asyncio.sleep(5.0)

        why = reason_of(live, "large")
        assert why is not None
        assert why.blocker is Blocker.TOO_LARGE

    play("las", people, "2x4:v100+1x8:a100")
