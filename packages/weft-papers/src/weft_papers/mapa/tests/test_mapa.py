"""MAPA's numbers for a DGX-1V, by hand and against a search over all orders of all sets."""

from __future__ import annotations

from itertools import combinations, permutations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.knowledge.traffic import Pattern, Traffic
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.node_types import NODE_TYPES
from weft.core.model.topology import NodeTopology
from weft.core.state.capacity import Capacity
from weft.formulas.network.link_scores import fit_bandwidth, list_sets, mask_of, score_sets
from weft.pieces.place.matching import DeviceChoice, Rule, choose, match

Mix = tuple[int, int, int]
DGX = NODE_TYPES["dgx-1v"]
ALL = 0xFF


def mask(*gpus: int) -> int:
    """GPUs as the paper numbers them, from 1."""
    return mask_of(tuple(gpu - 1 for gpu in gpus))


def pick(rule: Rule, count: int, free: int = ALL, *, sensitive: bool = True) -> DeviceChoice:
    chosen = choose(DGX, free, count, Pattern.RING, rule, sensitive=sensitive)
    assert chosen is not None
    return chosen


def search_rings(
    topology: NodeTopology, gpus: tuple[int, ...]
) -> dict[tuple[int, int, int], float]:
    """Of all ring orders of a set: mix of links, and bandwidth over all edges."""
    bandwidths = {}
    for rest in permutations(gpus[1:]):
        ring = (gpus[0], *rest)
        edges = list(zip(ring, (*rest, gpus[0]), strict=True))
        lanes = [topology.widths[a][b] for a, b in edges]
        mix = (sum(w > 1 for w in lanes), lanes.count(1), lanes.count(0))
        bandwidths[mix] = sum(topology.bandwidths[a][b] for a, b in edges)
    return bandwidths


@pytest.mark.parametrize(
    ("mix", "gb_s"),
    [
        ((2, 0, 0), 58.925036),
        ((0, 2, 0), 27.720348),
        ((0, 0, 2), 10.370793),
        ((2, 1, 0), 57.857864),
        ((3, 1, 0), 68.706921),
        ((1, 0, 0), 39.079190),
    ],
)
def test_the_fit_gives_the_published_bandwidths(mix: tuple[int, int, int], gb_s: float) -> None:
    assert fit_bandwidth(DGX.ring_fit, mix) == pytest.approx(gb_s, abs=1e-6)


@pytest.mark.parametrize(
    ("count", "chosen", "aggregated", "preserved"),
    [
        (2, mask(1, 4), 100, 350),
        (3, mask(1, 3, 4), 125, 275),
        (4, mask(1, 2, 3, 4), 175, 225),
        (5, None, 210, 125),
        (6, None, 275, 50),
    ],
)
def test_greedy_on_an_empty_box_takes_the_widest_ring(
    count: int, chosen: int | None, aggregated: float, preserved: float
) -> None:
    picked = pick("greedy", count)

    assert chosen in (None, picked.mask)
    assert (picked.aggregated, picked.preserved) == (aggregated, preserved)


@pytest.mark.parametrize(
    ("pair", "aggregated", "preserved"), [((1, 2), 50, 325), ((1, 4), 100, 350), ((1, 6), 20, 300)]
)
def test_pairs_are_worth_what_the_paper_counts(
    pair: tuple[int, int], aggregated: float, preserved: float
) -> None:
    scores = score_sets(DGX, Pattern.RING)

    assert scores.aggregated[mask(*pair)] == aggregated
    assert scores.nvlink[ALL & ~mask(*pair)] == preserved


def test_preserve_beats_greedy_where_the_wider_sum_has_a_slow_edge() -> None:
    free = mask(1, 2, 4, 6, 7)

    greedy = pick("greedy", 3, free)
    sensitive = pick("preserve", 3, free)
    insensitive = pick("preserve", 3, free, sensitive=False)

    assert (greedy.mask, greedy.aggregated) == (mask(2, 6, 7), 110)
    assert greedy.predicted == pytest.approx(30.0035, abs=1e-4)
    assert (sensitive.mask, sensitive.aggregated) == (mask(1, 2, 4), 100)
    assert sensitive.predicted == pytest.approx(44.1268, abs=1e-4)
    assert (insensitive.mask, insensitive.preserved) == (mask(2, 6, 7), 50)


def test_the_best_rings_per_size_are_the_ideals_that_the_authors_divide_by() -> None:
    best = [max(score_sets(DGX, Pattern.RING).aggregated[list_sets(8, k)]) for k in range(2, 9)]

    assert best == [100, 125, 175, 210, 275, 325, 400]


def test_there_are_as_many_canonical_rings_as_the_paper_enumerates() -> None:
    # Each set of k GPUs has (k-1)!/2 rings: 3 for 4, 60 for 6, 2,520 for all 8.
    def rings(k: int) -> int:
        orders = {min(p, p[::-1]) for p in permutations(range(1, k))}
        return comb(8, k) * len(orders)

    assert [rings(4), rings(6), rings(8)] == [210, 1680, 2520]
    assert [len(list_sets(8, k)) for k in (4, 6, 8)] == [70, 28, 1]


@pytest.mark.parametrize("name", ["dgx-1v", "power9", "pcie-8"])
def test_scores_of_sets_are_those_of_a_search_over_all_orders(name: str) -> None:
    topology = NODE_TYPES[name]
    scores = score_sets(topology, Pattern.RING)

    for gpus in combinations(range(topology.gpus), 5):
        rings = search_rings(topology, gpus)
        assert scores.aggregated[mask_of(gpus)] == max(rings.values())
        if topology.ring_fit:
            best = max(fit_bandwidth(topology.ring_fit, mix) for mix in rings)
            assert scores.predicted[mask_of(gpus)] == pytest.approx(best)


@pytest.mark.parametrize(
    ("pattern", "edges"),
    [
        (Pattern.CHAIN, [(0, 1), (1, 2), (2, 3)]),
        (Pattern.STAR, [(0, 1), (0, 2), (0, 3)]),
        (Pattern.ALL_TO_ALL, list(combinations(range(4), 2))),
    ],
)
def test_other_patterns_score_as_a_search_over_all_orders(
    pattern: Pattern, edges: list[tuple[int, int]]
) -> None:
    scores, links = score_sets(DGX, pattern), DGX.bandwidths

    for gpus in combinations(range(8), 4):
        laid = [[links[order[a]][order[b]] for a, b in edges] for order in permutations(gpus)]
        assert scores.aggregated[mask_of(gpus)] == max(map(sum, laid))
        widest = max(map(min, laid)) * (3 if pattern is Pattern.ALL_TO_ALL else 1)
        assert scores.effective[mask_of(gpus)] == widest


def test_a_tree_takes_the_widest_links_that_join_all() -> None:
    scores = score_sets(NODE_TYPES["power9"], Pattern.TREE)

    assert scores.aggregated[0b000111] == 100.0
    assert scores.aggregated[0b011011] == 110.0  # two pairs of 50, and PCIe between them
    assert scores.effective[0b011011] == 10.0


@given(free=st.integers(1, 255), count=st.integers(1, 8), data=st.data())
def test_what_is_chosen_is_free_and_bandwidth_is_accounted_for(
    free: int, count: int, data: st.DataObject
) -> None:
    rule: Rule = data.draw(st.sampled_from(("lowest", "socket", "greedy", "preserve")))
    chosen = choose(DGX, free, count, Pattern.RING, rule, sensitive=data.draw(st.booleans()))

    assert (chosen is None) == (free.bit_count() < count)
    if chosen is not None:
        nvlink = score_sets(DGX, Pattern.RING).nvlink
        rest = free & ~chosen.mask
        across = sum(
            DGX.bandwidths[a][b] * bool(DGX.widths[a][b])
            for a in range(8)
            for b in range(8)
            if chosen.mask >> a & 1 and rest >> b & 1
        )
        assert chosen.mask & ~free == 0
        assert chosen.mask.bit_count() == count
        assert chosen.preserved + nvlink[chosen.mask] + across == pytest.approx(nvlink[free])
        assert chosen.lost == pytest.approx(nvlink[free] - chosen.preserved)


@given(free=st.integers(1, 2**16 - 1), count=st.integers(2, 8))
def test_behind_nvswitch_every_rule_finds_all_sets_alike(free: int, count: int) -> None:
    switched = NODE_TYPES["dgx-2"]
    rules: tuple[Rule, ...] = ("lowest", "greedy", "preserve")
    picks = [choose(switched, free, count, Pattern.RING, rule, sensitive=True) for rule in rules]

    assert picks[0] == picks[1] == picks[2]


def test_a_gang_goes_to_the_node_with_the_best_ring_left() -> None:
    cluster = parse_cluster("2x8:v100@dgx-1v")
    free = Capacity(cluster)
    # Of the first node the lower half is taken crosswise: only PCIe and single links are left.
    free.take(match("lowest")(Job(JobId("a"), demand=Demand(3)), free) or pytest.fail())
    free.take(match("lowest")(Job(JobId("b"), demand=Demand(3)), free) or pytest.fail())

    job = Job(JobId("c"), demand=Demand(2), traffic=Traffic(1.0, 0.5, 10.0))
    sensitive = match("preserve")(job, free)
    mild = Job(JobId("d"), demand=Demand(2), traffic=Traffic(1.0, 0.5, 10.0, sensitive=False))
    insensitive = match("preserve")(mild, free)

    assert sensitive is not None
    assert insensitive is not None
    assert sensitive.slices[0].node == "v100-0"  # GPUs 7 and 8 are joined by two lanes
    assert sensitive.slices[0].gpus == (6, 7)
    assert insensitive.slices[0].node == "v100-0"  # nothing else would be lost


def test_gangs_beyond_a_node_and_nodes_without_links_are_served() -> None:
    joined, plain = Capacity(parse_cluster("2x8:v100@dgx-1v")), Capacity(parse_cluster("2x8:v100"))
    large = Job(JobId("a"), demand=Demand(12))
    for free in (joined, plain):
        on = match("preserve")(large, free)
        assert on is not None
        assert on.gpus == 12
        assert free.fits(on)
