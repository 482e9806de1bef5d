"""Cells by hand and at random: splitting, merging, the check of an assignment, bad hardware."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.model.cluster import parse_cluster
from weft_papers.hived.assignment import lay_out, machines_of
from weft_papers.hived.bindings import CellBindings
from weft_papers.hived.cells import Cell, CellChain, FreeCells, check_assignment
from weft_papers.hived.rules import read_rules

LEVELS = ("gpu", "switch", "socket", "node")


def chain_of(nodes: int) -> CellChain:
    """Nodes of 8 GPUs: two sockets of two switches of two."""
    return CellChain("v100", LEVELS, (1, 2, 2, 2), 3, (0, 0, 0, nodes))


@pytest.mark.parametrize(
    ("assigned", "wanted"),
    [
        ((4, 0, 2, 2), ((8, 4, 4), (4, 0, 4), (4, 2, 2), (4, 2, 2))),
        ((1, 2, 3, 2), ((0, 1, -1), (2, 2, 0), (4, 3, 1), (4, 2, 2))),
    ],
)
def test_an_assignment_is_checked_from_the_top_down(
    assigned: tuple[int, ...], wanted: tuple[tuple[int, int, int], ...]
) -> None:
    checked = check_assignment((1, 2, 2, 2), (0, 0, 0, 4), assigned)

    assert [(level.available, level.assigned, level.rest) for level in checked] == list(wanted)


def test_cells_are_split_and_merged_step_by_step() -> None:
    free = FreeCells(chain_of(2))
    none = (0, 0, 0, 0)

    first = free.allocate(0, none)
    assert (first, free.counts()) == ((0, 0), [1, 1, 1, 1])
    assert [free.available(level) for level in range(4)] == [15, 7, 3, 1]
    half = free.allocate(2, none)
    assert (half, free.counts()) == ((2, 1), [1, 1, 0, 1])
    second = free.allocate(0, none)
    assert (second, free.counts()) == ((0, 1), [0, 1, 0, 1])
    assert first and half and second
    free.release(first)
    assert free.counts() == [1, 1, 0, 1]
    free.release(second)
    assert free.counts() == [0, 0, 1, 1]
    free.release(half)
    assert (free.counts(), free.free(3)) == ([0, 0, 0, 2], [0, 1])


def test_the_cheapest_of_the_smallest_cells_is_taken() -> None:
    free = FreeCells(chain_of(3))

    assert free.allocate(3, (0, 0, 0, 0), lambda cell: float(cell[1] == 0)) == (3, 1)


def test_a_healthy_cell_is_taken_from_a_larger_one_only_if_that_breaks_no_promise() -> None:
    free = FreeCells(chain_of(2))
    assert free.take_cell((2, 0))  # half of node 0; its other half is free
    free.fail(0)

    assert free.allocate(2, (0, 0, 0, 1)) is None  # node 1 is promised as a whole
    assert free.allocate(2, (0, 0, 0, 0)) == (2, 2)


def test_splittable_counts_what_may_be_split_without_breaking_a_promise() -> None:
    free = FreeCells(chain_of(2))
    free.allocate(2, (0, 0, 0, 1))

    assert free.splittable((0, 0, 0, 1)) == [4, 2, 1, 0]
    assert free.splittable((0, 0, 0, 2))[3] == -1


def test_bad_cells_are_counted_at_every_level() -> None:
    chain = CellChain("v100", ("gpu", "node", "rack"), (1, 4, 2), 1, (0, 1, 2))
    free = FreeCells(chain, bad=[1])

    assert [free.available(level) for level in range(3)] == [20, 5, 2]
    assert [len(free.bad_free(level)) for level in range(3)] == [4, 1, 1]
    assert free.allocate(2, (0, 0, 0)) == (2, 1)


@st.composite
def chains(draw: st.DrawFn) -> CellChain:
    """Two to four levels, with cells of any of the upper ones that stand alone."""
    fan = (1, *draw(st.lists(st.integers(2, 3), min_size=1, max_size=3)))
    tops = draw(st.lists(st.integers(0, 2), min_size=len(fan) - 2, max_size=len(fan) - 2))
    levels = tuple(f"l{level}" for level in range(len(fan)))
    return CellChain("x", levels, fan, 1, (0, *tops, draw(st.integers(1, 2))))


@examples(60)
@given(chain=chains(), seed=st.integers(0, 10_000))
def test_every_request_within_an_assignment_succeeds_whatever_others_do(
    chain: CellChain, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    free = FreeCells(chain)
    initial = [free.free(level) for level in range(len(chain.fan))]
    levels = range(len(chain.fan))
    clusters = _draw_assignment(rng, chain, free)
    held: list[tuple[int, Cell]] = []
    unbound = [list(cluster) for cluster in clusters]

    def promised() -> list[int]:
        return [sum(cells[level] for cells in unbound) for level in levels]

    for _ in range(40):
        who = int(rng.integers(len(clusters)))
        open_levels = [level for level in levels if unbound[who][level]]
        if open_levels and rng.random() < 0.6:
            level = int(rng.choice(open_levels))
            unbound[who][level] -= 1
            cell = free.allocate(level, promised())
            assert cell is not None, "a request within its own cells was refused"
            held.append((who, cell))
        elif held:
            owner, cell = held.pop(int(rng.integers(len(held))))
            free.release(cell)
            unbound[owner][cell[0]] += 1
        _check_invariants(chain, free, promised(), held)
    for _, cell in held:
        free.release(cell)
    assert [free.free(level) for level in levels] == initial


def _draw_assignment(
    rng: np.random.Generator, chain: CellChain, free: FreeCells
) -> list[list[int]]:
    """Cells of three virtual clusters that pass the check, as full as chance has it."""
    clusters = [[0] * len(chain.fan) for _ in range(3)]
    for _ in range(30):
        who, level = int(rng.integers(3)), int(rng.integers(len(chain.fan)))
        clusters[who][level] += 1
        total = [sum(cluster[i] for cluster in clusters) for i in range(len(chain.fan))]
        if not free.keeps(total):
            clusters[who][level] -= 1
    return clusters


def _check_invariants(
    chain: CellChain, free: FreeCells, promised: list[int], held: list[tuple[int, Cell]]
) -> None:
    for level, wanted in enumerate(promised):
        assert free.available(level) >= wanted
    assert min(free.splittable(promised)) >= 0
    devices = [device for _, cell in held for device in chain.devices(cell)]
    idle = [
        d
        for level in range(len(chain.fan))
        for n in free.free(level)
        for d in chain.devices((level, n))
    ]
    assert sorted(devices + idle) == list(range(chain.counts[0]))
    for level in range(1, len(chain.fan)):
        for number in range(chain.counts[level]):
            parts = chain.inside((level, number))
            assert not all(part[1] in free.free(level - 1) for part in parts)


@pytest.mark.data
def test_published_hierarchies_and_assignments_are_judged_alike(
    data: Callable[[str], Path],
) -> None:
    types = json.loads(data("hived/cell_types.json").read_text())
    cases = json.loads(data("hived/vc_examples.json").read_text())

    for case in cases:
        fan = types[case["chain"]]["fan"]
        assigned = [0] * len(fan)
        for cells in case["vcs"].values():
            for level, count in cells.items():
                assigned[int(level) - 1] += count
        free = [0] * (len(fan) - 1) + [case["top_cells"]]
        checked = check_assignment(fan, free, assigned)
        assert all(row.rest >= 0 for row in checked) == case["accepted"]
        for level, wanted in case["per_level"].items():
            row = checked[int(level) - 1]
            figures = {"available": row.available, "assigned": row.assigned, "rest": row.rest}
            assert figures == wanted


@examples(40)
@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_as_many_cells_are_doomed_as_only_bad_hardware_is_left_for(
    nodes: int, own: int, others: int, bad: int
) -> None:
    own, bad = min(own, nodes), min(bad, nodes)
    others = min(others, nodes - own)
    rules = read_rules({"a@node": float(own), "b@node": float(others)}, {}, {})
    layout = lay_out(machines_of(parse_cluster(f"{nodes}x4:v100")), rules)
    bindings = CellBindings(layout, [FreeCells(layout.chains[0], range(bad))])

    bindings.unbind_bad("a")

    assert len(bindings.doomed) == max(0, own - (nodes - bad))
    healthy = [bindings.bind(cell) for cell in bindings.of("a")]
    assert all(healthy)
    places = [bindings.bound[c.name] for c in bindings.of("a") if c.name not in bindings.doomed]
    assert not any(number < bad for _, number in places)


def test_a_doomed_cell_stays_on_the_machine_that_it_was_on() -> None:
    layout = lay_out(machines_of(parse_cluster("2x4:v100")), read_rules({"a@node": 2.0}, {}, {}))
    bindings = CellBindings(layout, [FreeCells(layout.chains[0], range(2))])
    bindings.last |= {cell.name: (cell.level, i) for i, cell in enumerate(bindings.of("a"))}

    bindings.unbind_bad("a")

    assert bindings.bound == bindings.last
