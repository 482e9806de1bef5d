"""Fragmentation by hand: the worked numbers of FGD, and whole runs against a slow count."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.formulas.fragmentation import (
    HeldDevices,
    JobClass,
    count_idle,
    fragmented,
    typical_classes,
)

# Classes a, b and c of the worked examples; CPUs are whole cores here.
CLASSES = (JobClass(0.5, 1, 0.5, 4.0), JobClass(0.3, 1, 1.0, 8.0), JobClass(0.2, 2, 1.0, 8.0))


@pytest.mark.parametrize(
    ("left", "cpus", "wanted"),
    [
        ([1.0, 1.0], 32.0, 0.0),
        ([0.5, 1.0], 32.0, 0.45),
        ([1.0, 0.3], 32.0, 0.5),
        ([1.0, 1.0], 6.0, 1.0),
    ],
)
def test_the_fragmentation_of_a_node_is_that_of_the_worked_examples(
    left: list[float], cpus: float, wanted: float
) -> None:
    assert fragmented(left, cpus, "v100", CLASSES) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("before", "cpus", "gpu", "share", "wanted"),
    [
        ([1.0, 1.0], 32.0, 0, 0.5, -0.45),
        ([0.5, 1.0], 32.0, 0, 0.5, 0.25),
        ([0.5, 1.0], 32.0, 1, 0.5, -0.05),
        ([0.6, 0.7], 32.0, 0, 0.5, 0.2),
        ([0.6, 0.7], 32.0, 1, 0.5, 0.15),
        ([1.0, 1.0], 32.0, 0, 1.0, -0.2),
        ([0.5, 1.0], 32.0, 1, 1.0, 0.2),
    ],
)
def test_what_a_placement_saves_is_that_of_the_worked_examples(
    before: list[float], cpus: float, gpu: int, share: float, wanted: float
) -> None:
    after = list(before)
    after[gpu] -= share
    left = cpus - (4.0 if share < 1.0 else 8.0)

    saved = fragmented(before, cpus, "v100", CLASSES) - fragmented(after, left, "v100", CLASSES)

    assert saved == pytest.approx(wanted)


def test_another_kind_and_jobs_without_gpus_use_nothing() -> None:
    idle = [1.0, 0.5]

    assert fragmented(idle, 8.0, "t4", [JobClass(1.0, 1, kinds=("a100",))]) == 1.5
    assert fragmented(idle, 8.0, "t4", [JobClass(1.0, 0)]) == 1.5


@given(
    st.lists(st.sampled_from((0.0, 0.25, 0.5, 1.0)), min_size=1, max_size=8),
    st.sampled_from((2.0, 6.0, 32.0)),
)
def test_it_is_never_more_than_what_is_idle_and_does_not_depend_on_the_order(
    left: list[float], cpus: float
) -> None:
    fragments = fragmented(left, cpus, "v100", CLASSES)

    assert 0.0 <= fragments <= sum(left) + 1e-9
    assert fragments == pytest.approx(fragmented(left[::-1], cpus, "v100", CLASSES))


def test_typical_classes_cover_most_jobs_and_sum_to_one() -> None:
    demands = [Demand(1)] * 60 + [Demand(8)] * 36 + [Demand(3)] * 4 + [Demand(0)] * 50

    classes = typical_classes(demands)

    assert [(class_.gpus, class_.popularity) for class_ in classes] == [(1, 0.625), (8, 0.375)]


def test_half_a_node_is_lost_to_jobs_that_take_a_whole_one() -> None:
    # One node of 4: a job holds 2 devices for an hour, then 4 for an hour.
    jobs = (
        (Job(JobId("a"), 0.0, Demand(2)), Truth(3600.0)),
        (Job(JobId("b"), 0.0, Demand(4)), Truth(3600.0)),
    )
    outcome = weft.simulate(Trace("two", jobs), "fifo", "1x4:v100", restart_cost=0.0).outcomes[
        "fifo"
    ][0]

    # Half of the jobs take 4: of 2 idle devices for 1 of 2 hours they can use none.
    assert outcome.metrics["fragmented_gpus"] == pytest.approx(0.5)
    assert outcome.metrics["fragmentation"] == pytest.approx(0.5)


rows = st.tuples(
    st.integers(0, 1),
    st.integers(0, 9),
    st.integers(1, 5),
    st.sets(st.integers(0, 3), min_size=1).map(lambda gpus: tuple(sorted(gpus))),
    st.sampled_from((0.25, 1.0)),
)


@given(st.lists(rows, max_size=8))
def test_a_run_counts_as_if_one_looked_at_every_instant(
    drawn: list[tuple[int, int, int, tuple[int, ...], float]],
) -> None:
    classes = (JobClass(0.4, 1, 0.5), JobClass(0.4, 2), JobClass(0.2, 16))
    kept, used = [], np.zeros((2, 15, 4))
    for node, start, length, devices, share in drawn:
        part = used[node, start : start + length][:, list(devices)]
        if (part + share <= 1.0).all():
            used[node, start : start + length, list(devices)] += share
            kept.append((node, float(start), float(start + length), len(devices), share, devices))
    held = HeldDevices(
        np.array([row[0] for row in kept], dtype=np.intp),
        np.array([row[1] for row in kept], dtype=float),
        np.array([row[2] for row in kept], dtype=float),
        np.array([row[3] for row in kept], dtype=float),
        np.array([row[4] for row in kept], dtype=float),
        [row[5] for row in kept],
    )
    slow = sum(
        fragmented(1.0 - used[node, at], 0.0, "v100", [*classes[:2], JobClass(0.2, 4)])
        for node in range(2)
        for at, _ in pairwise(range(15))
    )

    idle = count_idle(["v100", "v100"], [4, 4], held, (0.0, 14.0), classes)

    assert idle.gpu_s == pytest.approx(2 * 4 * 14 - used.sum())
    assert idle.fragmented_gpu_s == pytest.approx(slow)
