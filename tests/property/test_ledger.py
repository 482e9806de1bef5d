"""Laws of the ledger: any sequence of changes agrees with counting devices one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Sharing, Slice, Tier
from weft.core.state.capacity import RESIDENTS, Capacity

SHARES = (0.1, 0.2, 0.25, 0.3, 0.5, 0.6, 1.0)
CLUSTERS = ("1x1:t4", "3x4:v100", "2x2:t4+2x8:a100")

Device = tuple[int, int]
Readings = tuple[object, ...]


@dataclass
class Naive:
    """The same ledger as a list of promises."""

    cluster: Cluster
    held: list[Allocation] = field(default_factory=list)

    def devices(self, allocation: Allocation) -> Iterable[Device]:
        for part in allocation.slices:
            yield from ((self.cluster.index[part.node], gpu) for gpu in part.gpus)

    def claims(self) -> dict[Device, Fraction]:
        claims: dict[Device, Fraction] = {}
        for on in self.held:
            if on.sharing.tier is Tier.GUARANTEED:
                for device in self.devices(on):
                    claims[device] = claims.get(device, Fraction(0)) + exact(on.sharing.share)
        return claims

    def fits(self, wanted: Allocation) -> bool:
        if wanted.sharing.tier is Tier.OPPORTUNISTIC:
            fillers = [on for on in self.held if on.sharing.tier is Tier.OPPORTUNISTIC]
            return all(
                sum(device in set(self.devices(on)) for on in fillers) < RESIDENTS
                for device in self.devices(wanted)
            )
        claims, share = self.claims(), exact(wanted.sharing.share)
        return all(claims.get(d, Fraction(0)) + share <= 1 for d in self.devices(wanted))

    def readings(self) -> Readings:
        claims = self.claims()
        idle = [
            sum((i, gpu) not in claims for gpu in range(node.gpus))
            for i, node in enumerate(self.cluster.nodes)
        ]
        room = sum(idle) + sum(1 - claim for claim in claims.values())
        kinds = self.cluster.kinds
        of_kind = {
            kind: [i for i, node in enumerate(self.cluster.nodes) if node.kind == kind]
            for kind in kinds
        }
        return (
            idle,
            [sum(idle[i] for i in of_kind[kind]) for kind in kinds],
            round(float(room), 9),
            [
                [
                    min((i for i in of_kind[k] if idle[i] >= c), key=lambda i: (idle[i], i))
                    if any(idle[i] >= c for i in of_kind[k])
                    else None
                    for c in range(1, 9)
                ]
                for k in kinds
            ],
            [
                [[i for i in of_kind[k] if idle[i] == c] for c in range(self.cluster.node_size(k))]
                for k in kinds
            ],
            [
                sorted(
                    (d for d in claims if d[0] in of_kind[k] and claims[d] + exact(share) <= 1),
                    key=lambda d: (-claims[d], d),
                )
                for k in kinds
                for share in SHARES[:-1]
            ],
        )


def exact(share: float) -> Fraction:
    return Fraction(share).limit_denominator(1000)


def readings(free: Capacity) -> Readings:
    kinds = free.kinds
    return (
        [free.on(i) for i in range(len(free.cluster.nodes))],
        free.idle_by_kind(),
        round(free.room(), 9),
        [[free.best_fit(k, c) for c in range(1, 9)] for k in kinds],
        [[list(free.nodes_with(k, c)) for c in range(free.cluster.node_size(k))] for k in kinds],
        [free.with_room(k, share) for k in kinds for share in SHARES[:-1]],
    )


@st.composite
def allocations(draw: st.DrawFn, cluster: Cluster) -> Allocation:
    nodes = draw(st.lists(st.sampled_from(cluster.nodes), min_size=1, max_size=2, unique=True))
    share = draw(st.sampled_from(SHARES))
    tier = draw(st.sampled_from((Tier.GUARANTEED,) * 4 + (Tier.OPPORTUNISTIC,)))
    slices = []
    for node in nodes:
        gpus = draw(st.sets(st.integers(0, node.gpus - 1), min_size=1))
        part = 0.0 if tier is Tier.OPPORTUNISTIC else len(gpus) * share / node.gpus
        slices.append(Slice(node.id, tuple(sorted(gpus)), node.cpus * part, node.mem_gb * part))
    return Allocation(tuple(slices), Sharing(share, tier))


@examples(150)
@given(st.data(), st.sampled_from(CLUSTERS))
def test_any_sequence_of_changes_agrees_with_counting_devices(
    data: st.DataObject, text: str
) -> None:
    cluster = parse_cluster(text)
    free, naive = Capacity(cluster), Naive(cluster)
    marks: list[tuple[int, list[Allocation], Readings, float]] = []
    for _ in range(data.draw(st.integers(1, 20))):
        what = data.draw(st.sampled_from(("take", "take", "take", "give", "mark", "rollback")))
        if what == "take":
            wanted = data.draw(allocations(cluster))
            fits = free.fits(wanted)
            assert fits == naive.fits(wanted)
            if fits:
                free.take(wanted)
                naive.held.append(wanted)
        elif what == "give" and naive.held:
            free.give(naive.held.pop(data.draw(st.integers(0, len(naive.held) - 1))))
        elif what == "mark":
            marks.append((free.mark(), list(naive.held), readings(free), free.room()))
        elif what == "rollback" and marks:
            mark, naive.held, before, room = marks.pop()
            free.rollback(mark)
            assert readings(free) == before
            assert free.room() == room
        assert readings(free) == naive.readings()


def take_some(data: st.DataObject, free: Capacity) -> list[Allocation]:
    """Allocations that fitted one after the other, and are taken."""
    held = []
    for wanted in data.draw(st.lists(allocations(free.cluster), max_size=15)):
        if free.fits(wanted):
            free.take(wanted)
            held.append(wanted)
    return held


@examples(60)
@given(st.data(), st.sampled_from(CLUSTERS))
def test_what_is_given_back_leaves_an_empty_ledger(data: st.DataObject, text: str) -> None:
    cluster = parse_cluster(text)
    free = Capacity(cluster)
    empty, held = readings(free), take_some(data, free)

    for on in data.draw(st.permutations(held)):
        free.give(on)

    assert readings(free) == empty
    assert free.room() == cluster.gpus
    for i, node in enumerate(cluster.nodes):
        assert free.fits(Allocation((free.slice(i, node.gpus),)))


@examples(60)
@given(st.data(), st.sampled_from(CLUSTERS))
def test_the_order_of_promises_does_not_matter(data: st.DataObject, text: str) -> None:
    cluster = parse_cluster(text)
    first, other = Capacity(cluster), Capacity(cluster)

    for on in data.draw(st.permutations(take_some(data, first))):
        other.take(on)

    assert readings(first) == readings(other)
    assert first.room() == other.room()
