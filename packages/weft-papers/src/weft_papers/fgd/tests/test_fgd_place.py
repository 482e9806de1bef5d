"""Fragmentation gradient descent: scores of the paper's own rule, and where jobs go."""

from __future__ import annotations

import numpy as np
import pytest

from weft.core.events.event import Decided, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Sharing, Slice
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.formulas.fragmentation import JobClass, fragmented, score_change
from weft.pieces.place.parts import score_nodes
from weft.policies.compose.policy import Compose
from weft.testing.build import view_of

PART, ONE, TWO = Demand(1, share=0.5), Demand(1), Demand(2)
CLASSES = (JobClass(0.5, 1, 0.5, cpus=4.0), JobClass(0.3, 1, cpus=8.0), JobClass(0.2, 2, cpus=8.0))


@pytest.mark.parametrize(
    ("left", "cpus", "expected"),
    [
        ((1.0, 1.0), 32.0, 0.0),
        ((0.5, 1.0), 32.0, 0.45),
        ((1.0, 0.3), 32.0, 0.5),
        ((1.0, 1.0), 6.0, 1.0),
    ],
)
def test_what_typical_jobs_cannot_use(
    left: tuple[float, ...], cpus: float, expected: float
) -> None:
    assert fragmented(left, cpus, "any", CLASSES) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("demand", "taken", "left", "cpus", "score", "device"),
    [
        (PART, 4.0, (1.0, 1.0), 32.0, 38, 0),
        (PART, 4.0, (0.5, 1.0), 32.0, 56, 0),
        (PART, 4.0, (0.6, 0.7), 32.0, 54, 0),
        (PART, 4.0, (0.5, 1.0), 8.0, 48, 0),
        (ONE, 8.0, (1.0, 1.0), 32.0, 45, 0),
        (ONE, 8.0, (0.5, 1.0), 32.0, 54, 0),
        (TWO, 8.0, (0.5, 1.0), 32.0, -1, 0),
    ],
)
def test_scores_of_a_place(
    demand: Demand, taken: float, left: tuple[float, ...], cpus: float, score: int, device: int
) -> None:
    scores, devices = score_nodes(np.array([left]), demand, CLASSES, np.array([cpus]), taken)

    assert (scores[0], devices[0]) == (score, device)


def test_scores_are_whole_numbers_so_that_small_changes_are_equal() -> None:
    gains = np.array([0.0, 0.039, 0.041, -0.001])

    assert score_change(gains, np.zeros(4)).tolist() == [50, 50, 51, 49]


def test_a_part_of_a_gpu_goes_beside_another_and_leaves_a_node_for_the_gang() -> None:
    policy = Compose(place="fgd", admit="backfill")
    asks = {"a": PART, "b": PART, "c": ONE, "d": TWO}
    view = view_of("2x2:v100", *(Job(JobId(name), demand=ask) for name, ask in asks.items()))

    held = view.after(policy.decide(view))

    assert set(held) == {"a", "b", "c", "d"}
    assert held[JobId("a")].devices == held[JobId("b")].devices
    assert held[JobId("c")].slices[0].node == held[JobId("a")].slices[0].node


def test_a_part_of_a_gpu_fills_another_though_a_node_with_as_many_idle_ones_comes_first() -> None:
    # On the first node one GPU is idle, on the second one is idle and one half claimed.
    cluster = parse_cluster("2x2:v100")
    first, second = (Slice(node.id, (0,)) for node in cluster.nodes)
    state = State(cluster)
    for name, ask in (("a", ONE), ("b", PART), ("c", PART)):
        state.fold(0.0, Submitted(Job(JobId(name), demand=ask)))
    running = {"a": Allocation((first,)), "b": Allocation((second,), Sharing(share=0.5))}
    state.fold(0.0, Decided(1, {JobId(name): on for name, on in running.items()}))
    view = View(0.0, state.table, cluster, state.free)

    held = view.after(Compose(place="fgd", admit="backfill").decide(view))

    assert held[JobId("c")].devices == held[JobId("b")].devices
