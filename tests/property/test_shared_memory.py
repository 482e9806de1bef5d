"""Whatever happens to strangers on shared GPUs, nobody is promised memory that is not there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.strangers import World

from weft.core.events.event import Failed
from weft.core.model.job import JobId

ACTS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["a.py 1", "a.py 2", "b.py", "c.py", "d.py"])),
    st.tuples(st.just("declare"), st.sampled_from([5.0, 40.0, 90.0])),
    st.tuples(st.just("refuse"), st.just(0)),
    st.tuples(st.just("observe"), st.integers(0, 30), st.sampled_from([1.0, 20.0, 60.0, 120.0])),
    st.tuples(st.just("finish"), st.integers(0, 30)),
    st.tuples(st.just("out of memory"), st.integers(0, 30)),
)


@given(st.lists(ACTS, max_size=40))
def test_claims_never_exceed_a_device_and_none_is_forgotten(acts: list[tuple[object, ...]]) -> None:
    world, shy = World("1x2:h200"), set[str]()

    for number, act in enumerate(acts):
        play(world, act, f"j{number}", shy)
        check(world, shy)

    for _ in range(len(acts)):  # all that wait are started as others end
        if held := world.shares():
            world.finish(next(iter(held)))
    assert not len(world.scheduler.state.table)


def play(world: World, act: tuple[object, ...], name: str, shy: set[str]) -> None:
    held = list(world.shares())
    match act:
        case ("submit", str(script)):
            world.submit(name, script)
        case ("declare", float(gb)):
            world.submit(name, gpu_mem_gb=gb)
        case ("refuse", _):
            shy.add(name)
            world.submit(name, shareable=False)
        case ("observe", int(at), float(gb)) if held:
            world.observe(held[at % len(held)], gb)
        case ("finish", int(at)) if held:
            world.finish(held[at % len(held)])
        case ("out of memory", int(at)) if held:
            job = JobId(held[at % len(held)])
            lost = world.shares()[job] < 1.0
            failed = Failed(
                job, world.attempt(job), retry=lost, lost=lost, code=1, out_of_memory=True
            )
            world.tell(failed, after=60.0)


def check(world: World, shy: set[str]) -> None:
    claimed: dict[tuple[str, int], float] = {}
    shares: dict[tuple[str, int], list[float]] = {}
    for on in world.held():
        device = on.slices[0].node, on.slices[0].gpus[0]
        claimed[device] = claimed.get(device, 0.0) + (on.sharing.gpu_mem_gb or 0.0)
        shares.setdefault(device, []).append(on.sharing.share)
    assert all(gb <= 141.0 for gb in claimed.values())
    assert all(sum(parts) <= 1.0 + 1e-9 for parts in shares.values())
    assert all(world.shares()[job] == 1.0 for job in world.shares() if job in shy)
