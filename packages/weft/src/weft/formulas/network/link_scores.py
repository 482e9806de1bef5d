"""The worth of sets of a node's GPUs to a job that talks in a pattern, after MAPA (SC'21).

A match lays the pattern's workers on GPUs. The graph is complete, as PCIe joins whatever NVLink
does not, so every set matches in every order; each set is scored by its best order, for all sets of
a node at once. Sets are bit masks. Rings and chains are found by dynamic programming over sets
(Held and Karp), O(2^n n^2) once for a type of node; trees are maximum spanning trees.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from weft.core.knowledge.traffic import Pattern
from weft.core.model.topology import NodeTopology
from weft.core.state.cells import Floats
from weft.frozen import frozen

Masks = NDArray[np.int64]
Mix = tuple[int, int, int]  # links of a match: NVLink of two lanes or more, of one, and PCIe

LEAST_GB_S = 1.0  # a fit may fall below what any link carries


@frozen
class LinkScores:
    """Scores of every set of GPUs, indexed by mask.

    `aggregated` is the most bandwidth over all edges of a match. `effective` is what workers
    get of the match that a communication library would build, and `predicted` the most that the
    node's fit promises for any match. `nvlink` is the NVLink bandwidth inside the set. All in GB/s.
    """

    aggregated: Floats
    effective: Floats
    predicted: Floats
    nvlink: Floats


@lru_cache(maxsize=64)
def score_sets(topology: NodeTopology, pattern: Pattern) -> LinkScores:
    """Scores of every set of GPUs of such a node."""
    n = topology.gpus
    links = np.array(topology.bandwidths)
    lanes = np.array(topology.widths)
    nvlink = sum_inside(np.where(lanes > 0, links, 0.0))
    if topology.uniform and n > 1:
        aggregated, narrowest = _score_alike(n, float(links[0, 1]), pattern)
    else:
        aggregated, narrowest = SCORERS[pattern](links)
    if pattern is Pattern.ALL_TO_ALL:
        narrowest = narrowest * np.maximum(count_bits(n) - 1, 1)
    if topology.fabric_gb_s:  # a GPU has one port into the switch, whatever it talks to
        narrowest = np.minimum(narrowest, topology.fabric_gb_s)
    if not topology.ring_fit or pattern is not Pattern.RING:
        return LinkScores(aggregated, narrowest, narrowest, nvlink)
    effective, predicted = _score_by_fit(links, lanes, topology.ring_fit)
    return LinkScores(aggregated, effective, predicted, nvlink)


def fit_bandwidth(fit: tuple[float, ...], mix: Mix) -> float:
    """A ring's bandwidth by MAPA's regression on its links, GB/s."""
    x, y, z = mix
    terms = (
        *(x, y, z),
        *(1 / (x + 1), 1 / (y + 1), 1 / (z + 1)),
        *(x * y, y * z, x * z),
        *(1 / (x * y + 1), 1 / (y * z + 1), 1 / (x * z + 1)),
        *(x * y * z, 1 / (x * y * z + 1)),
    )
    return sum(c * term for c, term in zip(fit, terms, strict=True))


@lru_cache(maxsize=256)
def list_sets(gpus: int, size: int) -> Masks:
    """All sets of `size` GPUs, in lexicographic order of their numbers."""
    return np.array([sum(1 << i for i in members) for members in combinations(range(gpus), size)])


def mask_of(gpus: tuple[int, ...]) -> int:
    """A set of GPUs as a bit mask."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


def effective_gb_s(topology: NodeTopology, pattern: Pattern, gpus: tuple[int, ...]) -> float:
    """GB/s between the workers on a set of GPUs; infinite for a single one."""
    return float(score_sets(topology, pattern).effective[mask_of(gpus)])


@lru_cache(maxsize=16)
def count_bits(gpus: int) -> NDArray[np.int64]:
    """The number of GPUs in each set."""
    return np.array([mask.bit_count() for mask in range(1 << gpus)])


def sum_inside(links: Floats) -> Floats:
    """The sum of `links` over all pairs inside each set."""
    n = len(links)
    total = np.zeros(1 << n)
    for high in range(n):  # sets whose highest GPU is `high` follow from those without it
        bit = 1 << high
        with_high = np.zeros(bit)
        for low in range(high):
            with_high += links[high, low] * ((np.arange(bit) >> low) & 1)
        total[bit : 2 * bit] = total[:bit] + with_high
    return total


# ---- inside


def _score_alike(n: int, gb_s: float, pattern: Pattern) -> tuple[Floats, Floats]:
    """Scores where every pair is joined alike: only the number of edges counts."""
    sizes = count_bits(n)
    edges = {Pattern.RING: sizes * (sizes > 1), Pattern.ALL_TO_ALL: sizes * (sizes - 1) // 2}.get(
        pattern, np.maximum(sizes - 1, 0)
    )
    return edges.astype(np.float64) * gb_s, np.where(sizes > 1, gb_s, np.inf)


def _score_all_pairs(links: Floats) -> tuple[Floats, Floats]:
    n = len(links)
    least = np.full(1 << n, np.inf)
    masks = np.arange(1 << n)
    for a, b in combinations(range(n), 2):
        both = (masks >> a & masks >> b & 1) == 1
        least[both] = np.minimum(least[both], links[a, b])
    return sum_inside(links), least


def _score_stars(links: Floats) -> tuple[Floats, Floats]:
    n = len(links)
    masks = np.arange(1 << n)
    best, widest = np.zeros(1 << n), np.full(1 << n, -np.inf)
    for centre in range(n):
        inside = (masks >> centre & 1) == 1
        total, least = np.zeros(1 << n), np.full(1 << n, np.inf)
        for other in set(range(n)) - {centre}:
            here = inside & ((masks >> other & 1) == 1)
            total[here] += links[centre, other]
            least[here] = np.minimum(least[here], links[centre, other])
        best = np.where(inside, np.maximum(best, total), best)
        widest = np.where(inside, np.maximum(widest, least), widest)
    return best, np.where(count_bits(n) > 1, widest, np.inf)


def _score_trees(links: Floats) -> tuple[Floats, Floats]:
    """Maximum spanning trees by Prim's algorithm, of all sets side by side."""
    n = len(links)
    masks = np.arange(1 << n)
    inside = (masks[:, None] >> np.arange(n) & 1) == 1
    joined = np.zeros_like(inside)
    lowest = np.argmax(inside, axis=1)
    joined[masks, lowest] = inside[masks, lowest]
    reach = np.where(inside & ~joined, links[lowest], -np.inf)
    total, least = np.zeros(1 << n), np.full(1 << n, np.inf)
    for _ in range(n - 1):
        following = np.argmax(reach, axis=1)
        width = reach[masks, following]
        some = width > -np.inf
        total[some] += width[some]
        least[some] = np.minimum(least[some], width[some])
        joined[masks[some], following[some]] = True
        reach = np.where(inside & ~joined, np.maximum(reach, links[following]), -np.inf)
    return total, least


def _score_rings(links: Floats) -> tuple[Floats, Floats]:
    lowest = np.array([max((mask & -mask).bit_length() - 1, 0) for mask in range(1 << len(links))])
    back = links[lowest]  # of each set: from its members to where the ring began
    total = np.max(_walk(links, np.add, closed=True) + back, axis=1)
    widest = np.max(np.minimum(_walk(links, np.minimum, closed=True), back), axis=1)
    return _of_several(total, 0.0), _of_several(widest, np.inf)


def _score_chains(links: Floats) -> tuple[Floats, Floats]:
    total = np.max(_walk(links, np.add, closed=False), axis=1)
    widest = np.max(_walk(links, np.minimum, closed=False), axis=1)
    return _of_several(total, 0.0), _of_several(widest, np.inf)


def _of_several(score: Floats, alone: float) -> Floats:
    return np.where(count_bits(len(score).bit_length() - 1) > 1, score, alone)


def _walk(links: Floats, join: Callable[[Floats, Floats], Floats], *, closed: bool) -> Floats:
    """Sets x GPUs: the best path through a whole set that ends at each; -inf where there is none.

    A closed one begins at the set's lowest GPU, any other wherever is best.
    """
    n = len(links)
    best = np.full((1 << n, n), -np.inf)
    best[1 << np.arange(n), np.arange(n)] = 0.0 if join is np.add else np.inf
    for size in range(2, n + 1):
        masks = list_sets(n, size)
        for end in range(n):
            ends = (masks >> end & 1) == 1
            if closed:
                ends &= (masks & ((1 << end) - 1)) != 0  # a lower GPU begins
            here = masks[ends]
            best[here, end] = np.max(join(best[here ^ (1 << end)], links[:, end]), axis=1)
    return best


SCORERS: dict[Pattern, Callable[[Floats], tuple[Floats, Floats]]] = {
    Pattern.RING: _score_rings,
    Pattern.CHAIN: _score_chains,
    Pattern.TREE: _score_trees,
    Pattern.STAR: _score_stars,
    Pattern.ALL_TO_ALL: _score_all_pairs,
}


def _score_by_fit(
    links: Floats, lanes: NDArray[np.int64], fit: tuple[float, ...]
) -> tuple[Floats, Floats]:
    """Bandwidths of rings by the node's fit: of the ring of most bandwidth, and of the best."""
    effective, predicted = np.full(1 << len(links), np.inf), np.full(1 << len(links), np.inf)
    for mask, mixes in enumerate(_list_ring_mixes(links, lanes)):
        if mixes:
            by_mix = {mix: max(fit_bandwidth(fit, mix), LEAST_GB_S) for mix in mixes}
            widest = max(mixes.values())
            effective[mask] = max(by_mix[mix] for mix, sum_ in mixes.items() if sum_ == widest)
            predicted[mask] = max(by_mix.values())
    return effective, predicted


def _list_ring_mixes(links: Floats, lanes: NDArray[np.int64]) -> list[dict[Mix, float]]:
    """Of every set the mixes of links that a ring through it can have, with their bandwidth."""
    n = len(links)
    kinds = np.where(lanes >= 2, 0, np.where(lanes == 1, 1, 2)).tolist()
    gb_s = links.tolist()
    ends: list[dict[int, dict[Mix, float]]] = [{} for _ in range(1 << n)]
    rings: list[dict[Mix, float]] = [{} for _ in range(1 << n)]
    for mask in range(1, 1 << n):
        low = (mask & -mask).bit_length() - 1
        if mask == 1 << low:
            ends[mask] = {low: {(0, 0, 0): 0.0}}
            continue
        for end in range(low + 1, n):
            if mask >> end & 1:
                reached: dict[Mix, float] = {}
                for before, mixes in ends[mask ^ (1 << end)].items():
                    _extend(reached, mixes, kinds[before][end], gb_s[before][end])
                ends[mask][end] = reached
                _extend(rings[mask], reached, kinds[end][low], gb_s[end][low])
    return rings


def _extend(into: dict[Mix, float], mixes: dict[Mix, float], kind: int, gb_s: float) -> None:
    """Paths one link longer, keeping the widest of each mix."""
    for (x, y, z), total in mixes.items():
        mix = (x + (kind == 0), y + (kind == 1), z + (kind == 2))
        into[mix] = max(into.get(mix, 0.0), total + gb_s)
