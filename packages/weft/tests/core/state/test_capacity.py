"""The ledger: what fits where, what is refused and how a trial is undone."""

from __future__ import annotations

from math import isclose

import pytest

from weft.core.errors import PlanError
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Allocation, NodeId, Sharing, Slice, Tier
from weft.core.state.capacity import RESIDENTS, Capacity


def ledger(text: str = "3x4:v100") -> Capacity:
    return Capacity(parse_cluster(text))


def on(node: str, *gpus: int, share: float = 1.0, cpus: float = 0.0) -> Allocation:
    return Allocation((Slice(NodeId(node), gpus, cpus),), Sharing(share=share))


def filler(node: str, *gpus: int) -> Allocation:
    return Allocation((Slice(NodeId(node), gpus),), Sharing(0.0, Tier.OPPORTUNISTIC))


def refusal(free: Capacity, allocation: Allocation) -> str:
    assert not free.fits(allocation)
    with pytest.raises(PlanError) as caught:
        free.take(allocation)
    return caught.value.what


# ---- best fit


def test_best_fit_picks_the_fullest_node_that_still_fits() -> None:
    free = ledger()
    free.take(on("v100-1", 0))
    free.take(on("v100-2", 0, 1, 2))

    assert [free.best_fit("v100", count) for count in (1, 2, 3, 4, 5)] == [2, 1, 1, 0, None]


def test_best_fit_gives_ties_to_the_lowest_node() -> None:
    free = ledger()
    free.take(on("v100-2", 0))
    free.take(on("v100-1", 3))

    assert free.best_fit("v100", 3) == 1


def test_best_fit_stays_within_the_kind() -> None:
    free = ledger("1x2:t4+1x8:a100+1x4:t4")

    assert free.best_fit("t4", 3) == 2
    assert free.best_fit("a100", 1) == 1
    assert free.best_fit("t4", 5) is None


def test_nodes_are_listed_by_how_many_devices_they_have_free() -> None:
    free = ledger()
    free.take(on("v100-0", 1))

    assert list(free.nodes_with("v100", 4)) == [1, 2]
    assert list(free.nodes_with("v100", 3)) == [0]
    assert list(free.nodes_with("v100", 2)) == []


def test_opening_prefers_one_node_and_else_the_emptiest() -> None:
    free = ledger()
    free.take(on("v100-0", 0, 1))

    assert free.opening("v100", 0) == []
    assert free.opening("v100", 2) == [0]
    assert free.opening("v100", 4) == [1]
    assert free.opening("v100", 5) == [1, 2]
    assert free.opening("v100", 9) == [1, 2, 0]


# ---- building slices


def test_a_slice_is_the_first_free_devices_with_their_part_of_the_host() -> None:
    free = ledger()
    free.take(on("v100-0", 0, 2))

    made = free.slice(0, 1)

    assert made == Slice(NodeId("v100-0"), (1,), cpus=8.0, mem_gb=64.0)


def test_the_host_part_of_a_shared_device_is_scaled_by_the_share() -> None:
    assert ledger().slice(0, 2, share=0.25) == Slice(NodeId("v100-0"), (0, 1), 4.0, 32.0)


def test_two_half_shares_with_their_hosts_fill_a_node() -> None:
    free = ledger("1x1:v100")
    halves = [Allocation((free.slice_of(0, 1, 0.5),), Sharing(share=0.5)) for _ in range(2)]

    for half in halves:
        free.take(half)

    assert free.room() == 0.0


# ---- taking and giving


def test_taking_and_giving_move_the_count_of_idle_devices() -> None:
    free = ledger("1x4:t4+1x4:a100")
    held = on("a100-1", 1, 3)

    free.take(held)
    assert (free.idle(), free.idle("t4"), free.idle("a100"), free.on(1)) == (6, 4, 2, 2)
    assert free.idle_by_kind() == [4, 2]

    free.give(held)
    assert (free.idle(), free.on(1)) == (8, 4)


def test_a_gang_over_two_nodes_is_taken_whole_or_not_at_all() -> None:
    free = ledger()
    free.take(on("v100-1", 0))
    gang = Allocation((Slice(NodeId("v100-0"), (0, 1)), Slice(NodeId("v100-1"), (0, 1))))

    message = refusal(free, gang)

    assert message == "GPU 0 of v100-1 is claimed to 1.00 already"
    assert free.idle() == 11


def test_shares_of_one_device_sum_to_at_most_one() -> None:
    free = ledger()
    for share in (0.5, 0.3, 0.2):
        free.take(on("v100-0", 2, share=share))

    message = refusal(free, on("v100-0", 2, share=0.1))

    assert message == "GPU 2 of v100-0 is claimed to 1.00 already"
    assert isclose(free.room(), 11.0)


@pytest.mark.parametrize("parts", [3, 6, 7, 10])
def test_equal_parts_fill_a_device_in_spite_of_rounding(parts: int) -> None:
    free = ledger("1x1:v100")
    part = on("v100-0", 0, share=1 / parts)

    for _ in range(parts):
        free.take(part)
    assert not free.fits(part)

    for _ in range(parts):
        free.give(part)
    assert (free.idle(), free.room()) == (1, 1.0)


def test_a_shared_device_is_not_idle_but_has_room() -> None:
    free = ledger("1x2:v100")

    free.take(on("v100-0", 0, share=0.25))

    assert (free.idle(), free.room()) == (1, 1.75)
    assert refusal(free, on("v100-0", 0)) == "GPU 0 of v100-0 is claimed to 0.25 already"


def test_partly_claimed_devices_are_offered_fullest_first_then_in_order() -> None:
    free = ledger("2x2:v100")
    free.take(on("v100-1", 0, share=0.5))
    free.take(on("v100-0", 1, share=0.5))
    free.take(on("v100-0", 0, share=0.75))

    assert free.with_room("v100", 0.25) == [(0, 0), (0, 1), (1, 0)]
    assert free.with_room("v100", 0.5) == [(0, 1), (1, 0)]


def test_opportunistic_jobs_take_no_claim() -> None:
    free = ledger("1x2:v100")
    free.take(on("v100-0", 0))

    free.take(filler("v100-0", 0, 1))

    assert (free.idle(), free.room()) == (1, 1.0)
    assert free.fits(on("v100-0", 1))


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_device_hosts_only_so_many_opportunistic_jobs(busy: bool) -> None:
    free = ledger("1x1:v100")
    if busy:
        free.take(on("v100-0", 0))
    for _ in range(RESIDENTS):
        free.take(filler("v100-0", 0))

    message = refusal(free, filler("v100-0", 0))

    assert message == f"GPU 0 of v100-0 hosts {RESIDENTS} opportunistic jobs already"
    free.give(filler("v100-0", 0))
    assert free.fits(filler("v100-0", 0))


# ---- objections


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (Allocation(()), "an allocation without slices"),
        (on("v100-7", 0), "node 'v100-7' is not in the cluster"),
        (on("v100-0"), "v100-0 lists devices ()"),
        (on("v100-0", 1, 1), "v100-0 lists devices (1, 1)"),
        (on("v100-0", -1), "v100-0 lists devices (-1,)"),
        (on("v100-0", 4), "GPU 4 of v100-0 does not exist"),
        (on("v100-0", 0, cpus=33.0), "v100-0 has 32.0 CPUs and 256.0 GB left"),
        (on("v100-0", 0, share=0.0), "a share of 0 of a device"),
        (on("v100-0", 0, share=-0.5), "a share of -0.5 of a device"),
        (on("v100-0", 0, share=1.5), "a share of 1.5 of a device"),
        (on("v100-0", 0, share=float("nan")), "a share of nan of a device"),
        (
            Allocation((Slice(NodeId("v100-0"), (0,)), Slice(NodeId("v100-0"), (0,)))),
            "v100-0 is listed twice",
        ),
    ],
)
def test_an_impossible_allocation_is_refused_with_its_reason(
    allocation: Allocation, message: str
) -> None:
    free = ledger()

    assert refusal(free, allocation) == message
    assert free.idle() == 12


def test_the_host_is_part_of_the_ledger() -> None:
    free = ledger("1x4:v100")
    free.take(on("v100-0", 0, cpus=30.0))

    message = refusal(free, on("v100-0", 1, cpus=3.0))

    assert message == "v100-0 has 2.0 CPUs and 256.0 GB left"


def test_an_emptied_node_has_exactly_its_host_again() -> None:
    node = Node(NodeId("n"), "v100", 3, cpus=1.0, mem_gb=1.0)
    free = Capacity(Cluster((node,)))
    parts = [Allocation((Slice(NodeId("n"), (i,), 1 / 3, 1 / 3),)) for i in range(3)]

    for part in parts * 50:
        free.take(part)
        free.give(part)

    assert free.fits(Allocation((Slice(NodeId("n"), (0, 1, 2), 1.0, 1.0),)))


# ---- trials


def test_a_rollback_undoes_everything_since_the_mark_and_nothing_before() -> None:
    free = ledger()
    first, second, third = on("v100-0", 0), on("v100-0", 1), on("v100-1", 0, 1, share=0.5)
    free.take(first)
    mark = free.mark()
    free.take(second)
    free.give(first)
    free.take(third)

    free.rollback(mark)

    assert not free.fits(first)
    assert free.fits(second)
    assert (free.idle(), free.room()) == (11, 11.0)


def test_marks_nest() -> None:
    free = ledger()
    outer = free.mark()
    free.take(on("v100-0", 0))
    inner = free.mark()
    free.take(on("v100-0", 1))

    free.rollback(inner)
    assert free.idle() == 11

    free.rollback(outer)
    assert free.idle() == 12


def test_what_is_committed_stays() -> None:
    free = ledger()
    free.take(on("v100-0", 0))

    free.commit()
    free.rollback(0)

    assert free.idle() == 11


def test_memory_of_a_device_is_promised_once() -> None:
    free = ledger("1x1:t4")

    def part(gb: float) -> Allocation:
        return Allocation((free.slice_of(0, 1, 0.25),), Sharing(0.25, gpu_mem_gb=gb))

    free.take(part(10.0))
    mark = free.mark()

    with pytest.raises(PlanError, match=r"has 6\.0 of 16 GB of memory left, not 7\.0"):
        free.take(part(7.0))
    free.take(part(6.0))
    free.rollback(mark)
    assert free.claimed_gb(0, 0) == 10.0
    free.give(part(10.0))
    assert free.claimed_gb(0, 0) == 0.0
    assert free.idle() == 1
