"""Places for gangs and parts, on ledgers made by hand."""

from __future__ import annotations

import pytest

from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.state.capacity import Capacity
from weft.pieces.place.gangs import Placer, acceptable, consolidate, fewest_nodes, in_gaps
from weft.pieces.place.parts import by_skew, skew_of


def ledger(text: str, *busy: int) -> Capacity:
    """A cluster with so many devices of each node taken."""
    free = Capacity(parse_cluster(text))
    for node, count in enumerate(busy):
        if count:
            free.take(Allocation((free.slice(node, count),)))
    return free


def job(gpus: int, *kinds: str, share: float = 1.0, model: str = "") -> Job:
    return Job(JobId("j"), demand=Demand(gpus, kinds=kinds, share=share), model=model)


def places(on: Allocation | None) -> dict[str, tuple[int, ...]] | None:
    return None if on is None else {str(part.node): part.gpus for part in on.slices}


ALL = [fewest_nodes, consolidate, in_gaps]


@pytest.mark.parametrize("place", ALL)
def test_a_gang_that_fits_on_one_node_goes_where_it_fits_best(place: Placer) -> None:
    free = ledger("3x4:v100", 0, 2, 1)

    assert places(place(job(2), free)) == {"v100-1": (2, 3)}
    assert places(place(job(3), free)) == {"v100-2": (1, 2, 3)}


@pytest.mark.parametrize("place", ALL)
def test_a_placer_takes_nothing_itself(place: Placer) -> None:
    free = ledger("2x4:v100")

    place(job(6), free)

    assert free.idle() == 8


@pytest.mark.parametrize("place", ALL)
def test_a_gang_without_room_waits(place: Placer) -> None:
    assert place(job(4), ledger("2x2:v100", 1, 0)) is None


def test_a_gang_over_nodes_takes_the_emptiest_and_then_the_best_rest() -> None:
    free = ledger("4x4:v100", 0, 3, 2, 0)

    assert places(fewest_nodes(job(6), free)) == {"v100-0": (0, 1, 2, 3), "v100-2": (2, 3)}
    assert places(fewest_nodes(job(5), free)) == {"v100-0": (0, 1, 2, 3), "v100-1": (3,)}


def test_a_gang_over_broken_nodes_uses_as_few_as_there_are() -> None:
    free = ledger("4x4:v100", 1, 2, 3, 3)

    assert places(fewest_nodes(job(6), free)) == {
        "v100-0": (1, 2, 3),
        "v100-1": (2, 3),
        "v100-2": (3,),
    }


def test_a_consolidated_gang_waits_for_the_least_number_of_nodes() -> None:
    spread, whole = ledger("3x4:v100", 1, 1, 1), ledger("3x4:v100", 1, 0, 0)

    assert consolidate(job(4), spread) is None
    assert consolidate(job(8), spread) is None
    assert places(consolidate(job(3), spread)) == {"v100-0": (1, 2, 3)}
    assert places(consolidate(job(8), whole)) == {"v100-1": (0, 1, 2, 3), "v100-2": (0, 1, 2, 3)}


def test_gaps_are_filled_from_the_fullest_node() -> None:
    free = ledger("3x4:v100", 1, 3, 2)

    assert places(in_gaps(job(5), free)) == {"v100-1": (3,), "v100-2": (2, 3), "v100-0": (1, 2)}


def test_kinds_are_tried_in_the_order_of_the_cluster() -> None:
    free = ledger("1x4:t4+2x4:a100", 3)

    assert places(fewest_nodes(job(1), free)) == {"t4-0": (3,)}
    assert places(fewest_nodes(job(2), free)) == {"a100-1": (0, 1)}
    assert places(fewest_nodes(job(1, "a100"), free)) == {"a100-1": (0,)}
    assert fewest_nodes(job(5, "t4"), free) is None


def test_a_gang_stays_on_one_kind() -> None:
    assert fewest_nodes(job(6), ledger("1x4:t4+1x4:a100")) is None


def test_acceptable_kinds_are_those_there_are() -> None:
    free = ledger("1x1:t4+1x1:a100")

    assert acceptable(job(1), free) == ("t4", "a100")
    assert acceptable(job(1, "a100", "h100", "t4"), free) == ("t4", "a100")
    assert acceptable(job(1, "h100"), free) == ()
    assert fewest_nodes(job(1, "h100"), free) is None


# ---- parts of devices


def test_a_part_goes_to_the_fullest_device_with_room() -> None:
    free = ledger("2x2:v100")
    for node, gpu, share in (("v100-0", 1, 0.25), ("v100-1", 0, 0.5)):
        free.take(Allocation((Slice(NodeId(node), (gpu,)),), Sharing(share=share)))

    assert places(fewest_nodes(job(1, share=0.5), free)) == {"v100-1": (0,)}
    assert places(fewest_nodes(job(1, share=0.75), free)) == {"v100-0": (1,)}
    assert places(fewest_nodes(job(1, share=0.8), free)) == {"v100-0": (0,)}


def test_a_part_carries_its_share_and_its_part_of_the_host() -> None:
    on = fewest_nodes(job(1, share=0.25), ledger("1x2:v100"))

    assert on == Allocation((Slice(NodeId("v100-0"), (0,), 2.0, 16.0),), Sharing(share=0.25))


def test_a_gang_of_parts_uses_opened_devices_first_and_each_only_once() -> None:
    free = ledger("2x2:v100")
    free.take(Allocation((Slice(NodeId("v100-1"), (1,)),), Sharing(share=0.5)))

    on = fewest_nodes(job(3, share=0.5), free)

    assert places(on) == {"v100-0": (0, 1), "v100-1": (1,)}


def test_a_gang_of_parts_without_room_waits() -> None:
    free = ledger("1x2:v100")
    free.take(Allocation((Slice(NodeId("v100-0"), (0,)),), Sharing(share=0.75)))

    assert fewest_nodes(job(2, share=0.5), free) is None


def test_what_is_placed_can_be_taken() -> None:
    free = ledger("3x4:v100", 1, 2, 0)
    for share, gpus in ((0.5, 5), (0.25, 7), (0.5, 3)):
        on = fewest_nodes(job(gpus, share=share), free)
        assert on is not None
        assert on.gpus == gpus

        free.take(on)


# ---- skew


def test_skew_is_the_hint_else_the_models_else_nothing() -> None:
    hinted = Job(JobId("j"), model="vgg16", hints={"skew": 0.1})

    assert skew_of(hinted) == 0.1
    assert skew_of(job(1, model="VGG16")) == 0.744
    assert skew_of(job(1, model="unheard-of")) == 0.0


def test_only_skewed_models_are_consolidated() -> None:
    free = ledger("2x4:v100", 2, 2)
    place = by_skew(0.25)

    assert place(job(4, model="vgg16"), free) is None
    assert places(place(job(4, model="resnet50"), free)) == {"v100-0": (2, 3), "v100-1": (2, 3)}
