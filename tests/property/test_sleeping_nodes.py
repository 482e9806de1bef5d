"""Nodes that sleep beside drains and reservations: nobody's word is undone, and nobody waits on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.scenarios.live import run_virtually

from weft.app.serve.live import Live, Settings
from weft.app.serve.sleep_nodes import SleepSettings
from weft.core.model.job import Demand, Job, JobId, NodeId

NODES = tuple(NodeId(f"a100-{i}") for i in range(4))
ENGINE = "simulated:cluster=4x2:a100,speed=1"
BIN_S, BOOT_S = 600.0, 120.0
DONE_S = 4 * BIN_S  # longer than any drawn job, a boot and a look at who sleeps

SUBMIT = st.tuples(st.just("submit"), st.sampled_from([1, 2, 2, 4]), st.sampled_from(["red", ""]))
DRAIN = st.tuples(st.sampled_from(["drain", "drain", "undrain"]), st.sampled_from(NODES))
KEEP = st.tuples(st.sampled_from(["reserve", "free"]), st.sampled_from(NODES))
STEPS = st.lists(
    st.tuples(st.sampled_from([5.0, 100.0, 700.0, 2000.0]), SUBMIT | DRAIN | KEEP), max_size=14
)


async def play(seconds: Callable[[], float], steps: list[tuple[float, tuple[object, ...]]]) -> None:
    sleep = SleepSettings(0, BOOT_S)
    settings = Settings(engine=ENGINE, policy="fifo", decide_in="service", sleep_nodes=sleep)
    live = Live(settings, seconds)
    await live.open()
    drained: set[str] = set()
    try:
        for number, (pause, step) in enumerate(steps):
            await asyncio.sleep(pause)
            check_drains(live, drained)
            match step:
                case ("submit", int(gpus), str(tenant)):
                    demand, hints = Demand(gpus), {"duration_s": 300.0}
                    job = Job(JobId(f"j{number}"), demand=demand, tenant=tenant, hints=hints)
                    await live.driver.submit(job)
                case ("drain", node):
                    await live.drain(NodeId(str(node)))
                    drained.add(str(node))
                case ("undrain", node):
                    await live.use_again(NodeId(str(node)))
                    drained.discard(str(node))
                case (word, node):
                    windows = {f"w-{node}": f"{node}=red"} if word == "reserve" else {}
                    await live.set_quotas(replace(live.quotas, windows=windows))
        await asyncio.sleep(DONE_S)
        check_drains(live, drained)
        for node in NODES:  # now everybody can be served
            await live.use_again(node)
        await live.set_quotas(replace(live.quotas, windows={}))
        for _ in range(4 * (1 + len(live.driver.jobs()))):
            if unfinished(live):
                await asyncio.sleep(BIN_S)
        assert unfinished(live) == []
    finally:
        await live.close()


def unfinished(live: Live) -> list[JobId]:
    return [status.record.job.id for status in live.driver.jobs() if not status.record.outcome]


def check_drains(live: Live, drained: set[str]) -> None:
    """What a person drained is out of use."""
    words = {node.id: word for node, word in live.driver.nodes()}
    assert {words[NodeId(node)] for node in drained} <= {"drained"}


@examples(48)
@given(steps=STEPS)
def test_what_a_person_drained_stays_so_and_everybody_is_served(
    steps: list[tuple[float, tuple[object, ...]]],
) -> None:
    run_virtually(lambda seconds: play(seconds, steps))


@pytest.mark.parametrize("kept", [False, True])
def test_a_node_that_sleeps_and_is_drained_is_not_woken_for_who_waits(kept: bool) -> None:
    """Woken, it would have been in use after its boot, whatever the person had said."""
    long = [(2000.0, ("drain", node)) for node in NODES[1:]]
    waits = [(5.0, ("submit", 4, "")), (2000.0, ("undrain", NODES[2]))]
    reserve = [(5.0, ("reserve", NODES[2]))] * kept

    run_virtually(lambda seconds: play(seconds, [*long, *reserve, *waits]))
