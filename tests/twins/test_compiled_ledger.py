"""The ledger is the same to the last bit whether its moves are compiled or not."""

from __future__ import annotations

import random
from sys import getallocatedblocks
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.twins.twins import twins

from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import EXCLUSIVE, Allocation, NodeId, Sharing, Slice, Tier
from weft.core.state.capacity import Capacity
from weft.core.state.whole_devices import LedgerParts

CLUSTER = Cluster(
    (
        *(Node(NodeId(f"a{i}"), "a100", 4, 31.3, 100.1) for i in range(3)),
        Node(NodeId("t0"), "t4", 8, 7.7, 12.3),
        Node(NodeId("wide"), "t4", 80, 100.0, 1000.0),
    )
)
SLICE = st.builds(
    Slice,
    st.sampled_from(["a0", "a1", "a2", "t0", "wide", "elsewhere"]),
    st.one_of(
        st.lists(st.integers(0, 5), max_size=3, unique=True).map(tuple),
        st.sampled_from([(-1,), (1, 1), (62,), (63, 64), (5000,), ()]),
    ),
    st.sampled_from([0.1, 1 / 3, 2.2, 40.0]),
    st.sampled_from([0.7, 3.3, 200.0]),
)
ALLOCATION = st.builds(
    Allocation,
    st.lists(SLICE, max_size=3).map(tuple),
    st.sampled_from([EXCLUSIVE, EXCLUSIVE, EXCLUSIVE, Sharing(0.5), Sharing()]),
)


def parts_of(free: Capacity) -> LedgerParts:
    return free._parts


def state(free: Capacity) -> object:
    parts = parts_of(free)
    return [repr(each) for each in parts[1:]]


@given(st.lists(st.tuples(ALLOCATION, st.booleans()), max_size=12), st.booleans())
def test_moves_leave_the_same_ledger(moves: list[tuple[Allocation, bool]], guest: bool) -> None:
    ours, theirs = Capacity(CLUSTER), Capacity(CLUSTER)
    if guest:
        beside = Allocation((Slice(NodeId("a0"), (0,)),), Sharing(0.0, Tier.OPPORTUNISTIC))
        ours.take(beside)
        theirs.take(beside)
    held: list[Allocation] = []
    for allocation, back in moves:
        name = "give_whole" if back and held else "take_whole"
        moved = held.pop() if back and held else allocation
        python, compiled = twins(name)
        done = python(parts_of(theirs), moved, EXCLUSIVE)
        wide = any(part.node == "wide" for part in moved.slices)
        ours_done = compiled(parts_of(ours), moved, EXCLUSIVE)
        if wide and done and not ours_done:  # left to Python: more devices than bits
            ours_done = python(parts_of(ours), moved, EXCLUSIVE)
        assert ours_done == done
        assert state(ours) == state(theirs)
        if done and name == "take_whole":
            held.append(moved)


def draw_whole(rng: random.Random, free: dict[NodeId, list[int]]) -> Allocation:
    """Devices that are free, now and then all of a host."""
    nodes = rng.sample(sorted(free), rng.randint(1, min(3, len(free))))
    slices = []
    for node in nodes:
        share = len(free[node]) if rng.random() < 0.4 else rng.randint(1, len(free[node]))
        devices = rng.sample(free[node], share)
        cpus, memory = rng.choice([0.1, 1 / 3, 0.7]), rng.choice([0.3, 1.1])
        slices.append(Slice(node, tuple(devices), cpus, memory))
    return Allocation(tuple(slices))


@given(st.integers(0, 2**32), st.sampled_from(["", "a0", "t0"]))
def test_hosts_fill_and_empty_in_the_same_way(seed: int, guest: str) -> None:
    rng = random.Random(seed)
    ours, theirs = Capacity(CLUSTER), Capacity(CLUSTER)
    if guest:
        beside = Allocation((Slice(NodeId(guest), (0,)),), Sharing(0.0, Tier.OPPORTUNISTIC))
        ours.take(beside)
        theirs.take(beside)
    free = {node.id: list(range(node.gpus)) for node in CLUSTER.nodes if node.id != "wide"}
    held: list[Allocation] = []
    succeeded = 0
    for turn in range(40):
        there = {node: devices for node, devices in free.items() if devices}
        gives = turn >= 30 or not there or (held and rng.random() < 0.45)
        if gives and not held:
            break
        moved = held.pop(rng.randrange(len(held))) if gives else draw_whole(rng, there)
        python, compiled = twins("give_whole" if gives else "take_whole")
        done = python(parts_of(theirs), moved, EXCLUSIVE)
        assert compiled(parts_of(ours), moved, EXCLUSIVE) == done
        assert state(ours) == state(theirs)
        if not done:
            continue
        succeeded += 1
        held += [] if gives else [moved]
        for part in moved.slices:
            kept = [device for device in free[part.node] if device not in part.gpus]
            free[part.node] = sorted([*kept, *part.gpus]) if gives else kept
    assert succeeded >= 4 or guest


def test_what_is_not_a_ledger_is_refused() -> None:
    _, take = twins("take_whole")
    allocation = Allocation((Slice(NodeId("a0"), (0,)),))
    parts = parts_of(Capacity(CLUSTER))
    for wrong in ((), parts[:-1], parts._replace(mask=[]), 3):
        with pytest.raises(TypeError):
            take(wrong, allocation, EXCLUSIVE)
    with pytest.raises(TypeError):
        take(parts, allocation)
    with pytest.raises(AttributeError):
        take(parts, SimpleNamespace(), EXCLUSIVE)


def test_moves_leave_nothing_behind() -> None:
    _, take = twins("take_whole")
    _, give = twins("give_whole")
    parts, allocation = (
        parts_of(Capacity(CLUSTER)),
        Allocation((Slice(NodeId("a0"), (0, 1), 1.1, 2.2),)),
    )
    take(parts, allocation, EXCLUSIVE)
    give(parts, allocation, EXCLUSIVE)
    before = getallocatedblocks()
    for _ in range(5_000):
        take(parts, allocation, EXCLUSIVE)
        give(parts, allocation, EXCLUSIVE)
    assert getallocatedblocks() - before < 200
