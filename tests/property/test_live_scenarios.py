"""Every policy under rules on a live scheduler: whatever people do, decisions go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.cheap import every_policy
from tests.examples import some
from tests.scenarios.drawn import draw
from tests.scenarios.live import play, run_virtually
from tests.seeds import seeds

from weft.app.insight.explain import cheapest_change, explain, plan
from weft.app.insight.present import Present
from weft.app.serve.live import Live, Settings
from weft.core.model.job import Demand, Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.core.plan.about import Controls
from weft.core.spec.registry import build, names


def settings(policy: str) -> Settings:
    engine = "simulated:cluster=1x4:v100,speed=1"
    return Settings(engine=engine, policy=policy, decide_in="service")


@pytest.mark.parametrize(
    ("policy", "seed"),
    [(name, seed) for turn, name in enumerate(names("policy")) for seed in some(seeds(2), turn, 1)],
)
def test_no_scenario_makes_a_policy_fail_or_leaves_a_job_behind(policy: str, seed: int) -> None:
    problem = play(draw(seed, [policy]))

    assert problem is None


BUSY = [name for name in names("policy") if not build("policy", name).about.idles]


@pytest.mark.parametrize(
    ("policy", "wrapper"),
    [
        (policy, wrapper)
        for turn, policy in enumerate(BUSY)
        for wrapper in some(("", "firm|", "steady|"), turn, 1)
    ],
)
def test_nobody_waits_beside_gpus_that_it_could_use(policy: str, wrapper: str) -> None:
    problems = [play(draw(seed, [policy], [wrapper])) for seed in seeds(2)]

    assert problems == [None, None]


# Virtual clusters have to fit the cluster: tests/integration/test_service_cells.py has them live.
OPTIONS = {"lend": "lend:own=red=2/blue=1", "quota": "quota:limits=red=3/blue=4"}
LIVE = [OPTIONS.get(name, name) for name in names("wrapper") if name != "hived"]


@pytest.mark.parametrize("wrapper", LIVE)
def test_nobody_waits_without_a_reason_under_any_wrapper(wrapper: str) -> None:
    problems = [play(draw(seed, ["srtf"], [f"{wrapper}|"])) for seed in seeds(2)]

    assert problems == [None, None]


GROWING = [name for name in BUSY if Controls.COUNT in build("policy", name).about.controls]
QUIET = [wrapper for wrapper in LIVE if not build("policy", f"{wrapper}|srtf").about.idles]


@pytest.mark.parametrize(
    ("policy", "wrapper"),
    [
        (policy, wrapper)
        for turn, policy in enumerate(GROWING)
        for wrapper in some(["", *(f"{name}|" for name in QUIET)], turn, 3)
    ],
)
def test_a_running_job_grows_into_gpus_that_come_free(policy: str, wrapper: str) -> None:
    """Under every wrapper that does not say when it leaves GPUs idle."""

    async def one_leaves(seconds: Callable[[], float]) -> list[int | str]:
        live = Live(settings(f"{wrapper}{policy}"), seconds)
        await live.open()
        launch = Launch(("true",))
        for name, demand, length in (("leaves", Demand(3), 900.0), ("grows", Demand(1, 1, 4), 9e4)):
            job = Job(JobId(name), demand=demand, hints={"duration_s": length}, launch=launch)
            await live.driver.submit(job)
            await asyncio.sleep(120.0)  # whoever leaves has begun
        held: list[int | str] = []
        for wait_s in (300.0, 7200.0):
            await asyncio.sleep(wait_s)
            table = live.driver.scheduler.state.table
            on = table.allocations[table.row(JobId("grows"))]
            held.append(0 if on is None else on.gpus)
        held.append(live.driver.trouble)
        await live.close()
        return held

    assert run_virtually(one_leaves) == [1, 4, ""]


@pytest.mark.parametrize(
    ("between_s", "waits"), [(0.0, {"pending", "preempted"}), (5.0, {"preempted"})]
)
def test_a_policy_that_counts_machines_decides_beside_firm_and_filling_jobs(
    between_s: float, waits: set[str]
) -> None:
    """With no time between two that leave, the filler may have begun or not: it has to wait."""

    async def people_come_and_go(seconds: Callable[[], float]) -> list[str]:
        live = Live(settings("gandiva"), seconds)
        await live.open()
        for job in (
            _job("first", 2),
            _job("second", 2),
            _job("filler", 1, 4, priority=-1.0, tier=Tier.OPPORTUNISTIC, preemptible=True),
            _job("three", 3),
            _job("one", 1),
        ):
            await live.driver.submit(job)
        await live.driver.cancel(JobId("first"))
        await asyncio.sleep(between_s)
        await live.driver.cancel(JobId("second"))
        await asyncio.sleep(5.0)
        troubled, states = live.driver.trouble, [status.state for status in live.driver.jobs()]
        await live.close()
        return [troubled, *states]

    trouble, _, _, filler, three, single = run_virtually(people_come_and_go)

    assert trouble == ""
    assert filler in waits
    assert (three, single) == ("running", "running")


@pytest.mark.parametrize("policy", every_policy())
def test_plans_and_explanations_are_given_on_a_full_cluster(policy: str) -> None:
    async def ask(seconds: Callable[[], float]) -> tuple[str, str]:
        live = Live(settings(policy), seconds)
        await live.open()
        for name in "abcd":
            await live.driver.submit(_job(name, 2))
        await asyncio.sleep(700.0)  # rounds come and go
        present = Present.of(live.driver.scheduler, live.driver.now)
        waiting = next(job.record.job for job in live.driver.jobs() if job.state == "pending")
        why = explain(present, waiting.id).reason
        cheapest_change(present, waiting)
        trial = plan(present, _job("new", 1)).reason
        await live.close()
        return why, trial

    why, trial = run_virtually(ask)

    assert why
    assert trial


def _job(name: str, gpus: int, most: int = 0, **fields: object) -> Job:
    demand = Demand(gpus, gpus, most or gpus)
    given: dict[str, object] = {"preemptible": False, "hints": {"duration_s": 3_600.0}, **fields}
    return Job(JobId(name), demand=demand, **given)  # type: ignore[arg-type]
