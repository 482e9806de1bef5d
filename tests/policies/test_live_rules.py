"""Fair and placing policies on a live scheduler: each one's own rule seen at work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.scenarios.live import run_virtually
from weft.app.serve.live import Live, Settings
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch

People = Callable[[Live], Awaitable[None]]


def job(name: str, gpus: int, seconds: float = 30_000.0, least: int = 0, **more: object) -> Job:
    demand = Demand(gpus, least or gpus, gpus)
    hints = {"duration_s": seconds}
    return Job(JobId(name), demand=demand, hints=hints, launch=Launch(("true",)), **more)  # type: ignore[arg-type]


def play(policy: str, cluster: str, people: People) -> None:
    async def whole(seconds: Callable[[], float]) -> None:
        engine = f"simulated:cluster={cluster},speed=1"
        live = Live(Settings(engine=engine, policy="fifo", decide_in="service"), seconds)
        await live.open()
        try:
            await live.driver.set_policy(policy)
            await people(live)
        finally:
            await live.close()

    run_virtually(whole)


async def submit(live: Live, *jobs: Job) -> None:
    for each in jobs:
        await live.driver.submit(each)
        await asyncio.sleep(2.0)


def held(live: Live) -> dict[str, int]:
    """GPUs of every job that runs."""
    records = [job.record for job in live.driver.jobs() if job.state == "running"]
    return {r.job.id: r.allocation.gpus for r in records if r.allocation is not None}


async def check_after(live: Live, seconds: float, **gpus: int) -> None:
    """Let time pass; then just these jobs run, on so many GPUs."""
    await asyncio.sleep(seconds)
    assert held(live) == gpus


def devices(live: Live, name: str) -> set[int]:
    on = live.driver.ledger.jobs[JobId(name)].allocation
    assert on is not None
    return {gpu for part in on.slices for gpu in part.gpus}


async def watch(live: Live, seconds: float, every: float) -> list[str]:
    """Who runs, looked at again and again."""
    seen: list[str] = []
    for _ in range(int(seconds / every)):
        await asyncio.sleep(every)
        seen += held(live)
    return seen


def test_themis_winners_pay_and_what_they_paid_goes_to_those_outside() -> None:
    # Two of five apps see the offer of 12 GPUs and win 6 each; each pays half of it, since without
    # it the other had all 12. The 6 that are left over go to the three outside.
    async def people(live: Live) -> None:
        await submit(live, *(job(name, 12, least=1) for name in "abcde"))
        assert held(live) == {"a": 12}
        await check_after(live, 80.0, a=3, b=3, c=2, d=2, e=2)

    play("themis:f=0.6,lease=60", "1x12:v100", people)


def test_shockwave_gives_every_job_rounds_before_the_first_has_ended() -> None:
    async def people(live: Live) -> None:
        await submit(live, *(job(name, 1, 1800.0) for name in "abc"))
        seen = await watch(live, 720.0, 60.0)
        assert {name: seen.count(name) >= 2 for name in "abc"} == dict.fromkeys("abc", True)

    play("shockwave:round=60,window=6,replan=3", "1x1:v100", people)


def test_shockwave_prefers_who_has_done_nothing_to_who_is_half_done() -> None:
    # A second of the longer job adds half as much to its progress, but its logarithm is steepest.
    async def people(live: Live) -> None:
        await submit(live, job("half", 1, 1800.0))
        await asyncio.sleep(900.0)
        await submit(live, job("new", 1, 3600.0))
        seen = await watch(live, 420.0, 60.0)
        assert seen.count("new") > seen.count("half")

    play("shockwave:round=60,window=6,replan=3,kappa=1e-9,rho=10", "1x1:v100", people)


def test_allox_starts_the_shortest_next_and_stops_nobody() -> None:
    async def people(live: Live) -> None:
        await submit(live, job("first", 1, 400.0))
        await submit(live, job("c", 1, 900.0), job("a", 1, 300.0), job("b", 1, 600.0))
        assert held(live) == {"first": 1}
        order = dict.fromkeys(await watch(live, 2400.0, 50.0))
        assert list(order) == ["first", "a", "b", "c"]

    play("allox", "1x1:v100", people)


def test_astraea_gives_a_tenant_with_one_job_half_of_the_time() -> None:
    async def people(live: Live) -> None:
        await submit(live, *(job(f"a{i}", 1, tenant="a") for i in range(3)))
        await submit(live, job("b", 1, tenant="b"))
        seen = await watch(live, 7200.0, 50.0)
        assert 0.4 < seen.count("b") / len(seen) < 0.6
        assert min(seen.count(f"a{i}") for i in range(3)) > 0.1 * len(seen)

    play("astraea:lease=300", "1x1:v100", people)


def test_astraea_puts_who_waited_for_the_threshold_before_those_who_had_less() -> None:
    # Short jobs come for ever and have had nothing; the long one waits no longer than it must.
    async def people(live: Live) -> None:
        await submit(live, job("long", 1, 3000.0, tenant="u"))
        waits, longest = 0.0, 0.0
        for i in range(24):
            await submit(live, job(f"short{i}", 1, 900.0, tenant="u"))
            await asyncio.sleep(298.0)
            waits = 0.0 if "long" in held(live) else waits + 300.0
            longest = max(longest, waits)
        assert 900.0 <= longest <= 1500.0

    play("astraea:lease=300,starving=1200", "1x1:v100", people)


def test_mapa_takes_gpus_with_fast_links_for_a_job_that_talks() -> None:
    async def people(live: Live) -> None:
        await submit(live, job("pair", 2, model="vgg16"))
        assert devices(live, "pair") in DOUBLE_LINKS

    play("mapa:rule=greedy", "1x8:v100@dgx-1v", people)


DOUBLE_LINKS = ({0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7})


def test_topology_keeps_a_pair_on_one_socket() -> None:
    async def people(live: Live) -> None:
        await submit(live, job("one", 1), job("pair", 2))
        assert devices(live, "pair") in ({0, 1}, {2, 3})

    play("topology", "1x4:p100@power8", people)


def test_lyra_gives_every_job_its_base_and_the_rest_to_whom_it_saves_most_time() -> None:
    async def people(live: Live) -> None:
        await submit(live, job("short", 4, 600.0, least=1), job("long", 4, 9000.0, least=1))
        await check_after(live, 60.0, short=1, long=3)
        await check_after(live, 4000.0, long=4)

    play("lyra", "1x4:v100", people)


def test_singularity_shrinks_a_basic_job_for_a_premium_one_and_stops_neither() -> None:
    # The premium job could do with less, but has all that it asks for; 2 is the largest divisor of
    # what the basic one asks for that is left. Without tiers they had 3 and 4.
    async def people(live: Live) -> None:
        await submit(live, job("basic", 8, least=1, priority=-1.0))
        assert held(live) == {"basic": 8}
        await submit(live, job("premium", 6, 600.0, least=1, priority=1.0))
        await check_after(live, 120.0, basic=2, premium=6)
        await check_after(live, 3000.0, basic=8)

    play("singularity", "1x8:v100", people)


def test_singularity_stops_a_basic_job_that_cannot_shrink_for_a_premium_one() -> None:
    async def people(live: Live) -> None:
        await submit(live, job("basic", 8, priority=-1.0))
        await submit(live, job("premium", 8, 600.0, priority=1.0))
        await check_after(live, 120.0, premium=8)
        await check_after(live, 1200.0, basic=8)

    play("singularity", "1x8:v100", people)
