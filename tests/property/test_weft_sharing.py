"""Sharing inside the optimiser of `weft`: its contract where neighbours gain, and live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from tests.cheap import check_contract
from tests.scenarios.drawn import draw
from tests.scenarios.live import play, run_virtually
from tests.seeds import seeds

from weft.app.insight.explain import Why, explain
from weft.app.insight.present import Present
from weft.app.serve.live import Live, Settings
from weft.core.events.event import Decided
from weft.core.knowledge.profile import Profile
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.spec.registry import build
from weft.testing.check import check_run

SHARES = "weft:share=true"


def gaining(group: Sequence[Profile]) -> list[float]:
    """Two on a device lose little, and each something else."""
    return [0.7 if profile.gpu_use > 0.5 else 0.9 for profile in group]


SLOW = [
    pytest.param(wrapper, marks=pytest.mark.slow) for wrapper in ("priority|", "steady|", "firm|")
]


@pytest.mark.parametrize("wrapper", ["quota:weights=x=2|", *SLOW])
def test_the_policy_keeps_the_contract_where_pairs_gain(wrapper: str) -> None:
    check_contract(build("policy", f"{wrapper}{SHARES},wake=600"), gaining)


def test_pairs_are_formed_in_a_run_that_is_watched() -> None:
    hints = {"gpu_util": 40.0, "gmem_util": 20.0, "gmem_mib": 4_000.0}
    jobs = tuple(
        (Job(JobId(f"j{i}"), 10.0 * i, Demand(1 + i % 2), hints=hints), Truth(600.0 + 90.0 * i))
        for i in range(16)
    )

    log = check_run(
        build("policy", SHARES), parse_cluster("1x4:v100"), Trace("", jobs), interfering=gaining
    )

    given = [on for _, e in log if isinstance(e, Decided) for on in e.changes.values()]
    assert {on.sharing.share for on in given if on is not None} == {0.5, 1.0}


@pytest.mark.parametrize("policy", [SHARES, "weft:strangers=true"])
@pytest.mark.parametrize("seed", seeds(2))
def test_no_live_scenario_makes_it_fail_or_leaves_a_job_behind(seed: int, policy: str) -> None:
    assert play(draw(seed, [policy])) is None


def test_a_live_service_puts_two_jobs_on_a_gpu_and_says_what_it_promised_them() -> None:
    def job(name: str, *, shareable: bool = True) -> Job:
        hints = {"duration_s": 600.0, "batch": 512.0}
        return Job(JobId(name), model="resnet18-cifar", hints=hints, shareable=shareable)

    async def submit(seconds: Callable[[], float]) -> tuple[list[str], Why, list[str]]:
        engine = "simulated:cluster=1x1:h200,speed=1"
        live = Live(Settings(engine=engine, policy=SHARES, decide_in="service"), seconds)
        await live.open()
        for submitted in (job("a"), job("b")):
            await live.driver.submit(submitted)
        await asyncio.sleep(300.0)
        await live.driver.submit(job("alone", shareable=False))
        await asyncio.sleep(60.0)
        states = [job.state for job in live.driver.jobs()]
        why = explain(Present.of(live.driver.scheduler, live.driver.now), JobId("a"))
        await asyncio.sleep(3_000.0)
        ended = [job.state for job in live.driver.jobs()]
        await live.close()
        return states, why, ended

    states, why, ended = run_virtually(submit)

    assert states == ["running", "running", "pending"]
    assert "shares its devices with b" in why.reason
    assert why.numbers["beside"] == 1
    assert 0.5 < why.numbers["predicted_pace"] < 1.0
    assert ended == ["succeeded"] * 3
