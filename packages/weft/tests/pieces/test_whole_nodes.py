"""Places for powers of two and whole nodes: always found, and with few moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weft.core.events.event import Decided, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import (
    EXCLUSIVE,
    Allocation,
    Config,
    Demand,
    Job,
    JobId,
    NodeId,
    Sharing,
    Slice,
)
from weft.core.plan.view import View
from weft.core.state.releasing import devices_of
from weft.core.state.state import State
from weft.perf.learnt_costs import LearntCosts
from weft.pieces.place.pairs import place_pairs
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.share.partners import NO_PARTNERS

SMALL = parse_cluster("3x4:t4")


def config_of(view: View, on: Allocation) -> Config:
    return Config(view.cluster.kind_of(on), len(on.slices), on.gpus)


def placed_by(view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation]:
    """The rows that start or move, and where to."""
    return {row: on for row, on in place_configs(view, wanted).items() if on is not None}


def on(*parts: tuple[str, tuple[int, ...]]) -> Allocation:
    return Allocation(tuple(Slice(NodeId(node), gpus) for node, gpus in parts))


def seen(cluster: Cluster, *held: Allocation | None) -> View:
    """A view in which job i holds `held[i]`."""
    state = State(cluster)
    for i, _ in enumerate(held):
        state.fold(0.0, Submitted(Job(JobId(f"j{i}"), demand=Demand(1, 1, 64))))
    changes = {JobId(f"j{i}"): where for i, where in enumerate(held) if where is not None}
    state.fold(0.0, Decided(1, changes))
    return View(0.0, state.table, cluster, state.free)


def after(view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation]:
    """What every row holds once the wanted ones are placed."""
    held = {row: view.allocation(row) for row in wanted} | place_configs(view, wanted)
    return {row: where for row, where in held.items() if where is not None}


def check(view: View, wanted: Mapping[int, Config], held: Mapping[int, Allocation]) -> None:
    assert set(held) == set(wanted)
    devices = [(s.node, g) for where in held.values() for s in where.slices for g in s.gpus]
    assert len(devices) == len(set(devices))
    for row, where in held.items():
        assert config_of(view, where) == wanted[row]
        size = view.cluster.node_size(wanted[row].kind)
        assert len(where.slices) == 1 or all(len(s.gpus) == size for s in where.slices)


# ---- jobs that change their devices as they train


def live_view(*held: Allocation | None) -> View:
    """The same, of jobs that can."""
    view = seen(SMALL, *held)
    costs = LearntCosts()
    for job in view.table.jobs:
        costs.observe_able(job, 1.0)
    return replace(view, knowledge=Knowledge(costs=costs))


def test_a_job_that_can_shrinks_and_grows_on_devices_that_it_has() -> None:
    names = [node.id for node in SMALL.nodes]
    held = on((names[1], (1, 3))), on((names[2], (0, 1, 2, 3)))
    view = live_view(*held)

    placed = placed_by(view, {0: Config("t4", 1, 4), 1: Config("t4", 1, 2)})

    assert placed[0].devices == ((names[1], (0, 1, 2, 3)),)
    assert placed[1].slices[0].node == names[2]


# ---- few moves


def test_a_job_on_shared_devices_that_shrinks_leaves_them_to_the_other() -> None:
    name = SMALL.nodes[0].id
    half = replace(on((name, (0, 1))), sharing=Sharing(0.5))
    view = live_view(half, half)

    changes = place_configs(view, {0: Config("t4", 1, 1), 1: Config("t4", 1, 2)})

    assert set(changes) == {0}
    assert changes[0] is not None
    assert changes[0].sharing == EXCLUSIVE
    assert set(devices_of(changes[0])).isdisjoint(devices_of(half))


def test_who_finds_no_place_beside_pairs_is_stopped_and_who_waits_is_not_named() -> None:
    name = SMALL.nodes[0].id
    view = seen(SMALL, on((name, (0, 1))), on((name, (2, 3))), None)

    changes = place_pairs(view, {1: Config("t4", 1, 2)}, (), NO_PARTNERS)

    assert changes == {0: None}


def test_who_asks_for_a_part_of_a_gpu_is_given_that_part() -> None:
    state = State(SMALL)
    for name, share in (("half", 0.5), ("whole", 1.0)):
        state.fold(0.0, Submitted(Job(JobId(name), demand=Demand(1, share=share))))
    view = View(0.0, state.table, SMALL, state.free)

    placed = placed_by(view, {row: Config("t4", 1, 1) for row in (0, 1)})

    assert {row: where.sharing.share for row, where in placed.items()} == {0: 0.5, 1: 1.0}


def test_rows_of_unchanged_size_stay() -> None:
    view = seen(SMALL, on(("t4-1", (2, 3))), on(("t4-0", (0, 1, 2, 3))), None)

    placed = placed_by(view, {0: Config("t4", 1, 2), 1: Config("t4", 1, 4), 2: Config("t4", 1, 1)})

    assert set(placed) == {2}
    assert placed[2].slices[0].node == "t4-1"  # the fullest node that has room


def test_rows_that_are_not_wanted_make_room() -> None:
    view = seen(SMALL, on(("t4-0", (0, 1, 2, 3))), on(("t4-1", (0, 1, 2, 3))), None)

    placed = placed_by(view, {1: Config("t4", 1, 4), 2: Config("t4", 2, 8)})

    assert set(placed) == {2}
    assert {s.node for s in placed[2].slices} == {"t4-0", "t4-2"}


def test_a_row_that_changes_size_is_placed_anew() -> None:
    view = seen(SMALL, on(("t4-0", (0,))), on(("t4-1", (0, 1, 2, 3))))

    held = after(view, {0: Config("t4", 2, 8), 1: Config("t4", 1, 4)})

    assert {s.node for s in held[0].slices} == {"t4-0", "t4-2"}


def test_whole_nodes_are_taken_from_the_end_while_there_are_empty_ones() -> None:
    placed = placed_by(seen(SMALL, None), {0: Config("t4", 2, 8)})

    assert [s.node for s in placed[0].slices] == ["t4-1", "t4-2"]


def test_a_node_is_emptied_where_the_fewest_gpus_move() -> None:
    view = seen(SMALL, on(("t4-0", (0, 1))), on(("t4-1", (0,))), on(("t4-2", (0, 1))), None)
    wanted = {0: Config("t4", 1, 2), 1: Config("t4", 1, 1), 2: Config("t4", 1, 2)}

    placed = placed_by(view, {**wanted, 3: Config("t4", 1, 4)})

    assert set(placed) == {1, 3}
    assert placed[3].slices[0].node == "t4-1"


def test_the_smallest_guests_move_first() -> None:
    cluster = parse_cluster("2x8:a100")
    view = seen(
        cluster,
        on(("a100-0", (0, 1, 2, 3))), on(("a100-0", (4,))), on(("a100-0", (5,))),
        on(("a100-1", (0, 1, 2, 3))), on(("a100-1", (4,))), None,
    )  # fmt: skip
    ones = {row: Config("a100", 1, 1) for row in (1, 2, 4)}
    fours = {row: Config("a100", 1, 4) for row in (0, 3, 5)}

    placed = placed_by(view, {**ones, **fours})

    assert set(placed) == {4, 5}
    assert placed[5].slices[0].node == "a100-1"


def test_who_is_firm_is_never_pushed_aside() -> None:
    single, two = Config("t4", 1, 1), Config("t4", 1, 2)
    view = seen(SMALL, on(("t4-0", (0,))), on(("t4-1", (0,))), on(("t4-2", (0, 1))), None)

    changes = place_configs(view, {0: single, 1: single, 2: two, 3: Config("t4", 1, 4)}, firm=[1])

    assert {*changes} == {0, 3}
    assert {*devices_of(changes[3] or on())} == {("t4-0", gpu) for gpu in range(4)}


def test_a_job_stays_as_it_is_where_its_new_size_finds_no_place() -> None:
    view = seen(SMALL, *(on((f"t4-{node}", (0,))) for node in range(3)), on(("t4-1", (1, 2))), None)
    wanted = {**dict.fromkeys(range(3), Config("t4", 1, 1)), 3: Config("t4", 1, 4)}

    assert place_configs(view, wanted, firm=range(3)) == {}
    assert place_configs(view, {**wanted, 4: Config("t4", 1, 4)}, firm=range(3)) == {}


def test_a_small_job_never_spans_nodes() -> None:
    view = seen(SMALL, *(on((f"t4-{i}", (0, 1, 2))) for i in range(2)), on(("t4-2", (0, 1))), None)
    wanted = {0: Config("t4", 1, 2), 1: Config("t4", 1, 2), 2: Config("t4", 1, 2)}

    held = after(view, {**wanted, 3: Config("t4", 1, 4)})

    check(view, {**wanted, 3: Config("t4", 1, 4)}, held)


def test_the_ledger_is_left_as_it_was() -> None:
    view = seen(SMALL, on(("t4-0", (0, 1))), None)

    place_configs(view, {0: Config("t4", 1, 1), 1: Config("t4", 2, 8)})

    assert view.free.idle() == 10
    assert [view.free.on(i) for i in range(3)] == [2, 4, 4]


# ---- always a place


@st.composite
def choices(draw: Any, cluster: Cluster, rows: range) -> dict[int, Config]:
    """Sizes for some rows, within the capacity of every kind."""
    room = dict(cluster.gpus_by_kind)
    wanted: dict[int, Config] = {}
    for row in rows:
        kind = draw(st.sampled_from(cluster.kinds))
        size = cluster.node_size(kind)
        parts = [2**i for i in range(size.bit_length()) if 2**i <= size]
        wholes = [n * size for n in range(2, 5)]
        gpus = draw(st.sampled_from([0, *parts, *wholes]))
        if 0 < gpus <= room[kind]:
            room[kind] -= gpus
            wanted[row] = Config(kind, max(gpus // size, 1), gpus)
    return wanted


@given(st.data())
def test_sizes_within_capacity_always_find_a_place_round_after_round(data: Any) -> None:
    cluster = parse_cluster(data.draw(st.sampled_from(("4x4:t4", "3x8:rtx+2x4:t4", "2x2:t4"))))
    rows = range(10)
    held: list[Allocation | None] = [None] * len(rows)
    for _ in range(3):
        wanted = data.draw(choices(cluster, rows))
        view = seen(cluster, *held)

        placed = after(view, wanted)

        check(view, wanted, placed)
        held = [placed.get(row) for row in rows]


@given(st.data())
def test_nobody_moves_while_there_is_room_without(data: Any) -> None:
    cluster = parse_cluster("4x4:t4")
    before = data.draw(choices(cluster, range(6)))
    held = after(seen(cluster, *[None] * 8), before)
    view = seen(cluster, *(held.get(row) for row in range(8)))

    placed = placed_by(view, {**before, 7: Config("t4", 1, 1)} if view.free.idle() else before)

    assert set(placed) <= {7}


@given(st.data())
def test_sizes_beyond_what_fits_leave_rows_out_but_never_split_or_shrink_them(data: Any) -> None:
    texts = ("2x6:v100", "1x8:v100+2x4:v100", "2x5:t4+1x8:a100")
    cluster = parse_cluster(data.draw(st.sampled_from(texts)))
    sizes = st.builds(
        Config, st.sampled_from(cluster.kinds), st.just(1), st.sampled_from((1, 2, 4))
    )
    held: list[Allocation | None] = [None] * 6
    for _ in range(2):
        wanted = data.draw(st.dictionaries(st.integers(0, 5), sizes, max_size=6))
        view = seen(cluster, *held)

        placed = after(view, wanted)

        # One that finds no place for its new size may stay as it is.
        sizes_after = {
            row: config_of(view, where) if where == held[row] else wanted[row]
            for row, where in placed.items()
        }
        check(view, sizes_after, placed)
        held = [placed.get(row) for row in range(6)]


def test_whole_nodes_of_a_kind_with_small_ones_are_large_ones() -> None:
    cluster = parse_cluster("1x8:v100+2x4:v100")
    view = seen(cluster, on(("v100-0", (0, 1, 2, 3))), on(("v100-0", (4, 5))), None)
    wanted = {0: Config("v100", 1, 4), 1: Config("v100", 1, 2), 2: Config("v100", 1, 8)}

    held = after(view, wanted)

    check(view, wanted, held)
