"""The worked examples of Arena (EuroSys 2026), and its decisions on small clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.plan_tables import KnownPlans, Measured, OwnPlans, PlanTable

from weft.core.model.cluster import parse_cluster
from weft.core.model.execution import Execution
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.view import View
from weft.testing.build import view_of, with_knowledge
from weft_papers.arena.policy import AllocationTrial, Arena, climb, find_room
from weft_papers.arena.published.data import cluster, find_speed, fits_plain, read_table, read_trace

# Samples per second of BERT with 1.3 billion parameters at a batch of 256.
BERT = {
    ("a100", 2): 23.790,
    ("a100", 4): 46.391,
    ("v100", 2): 11.661,
    ("v100", 4): 17.271,
    ("v100", 8): 35.466,
    ("a40", 2): 10.851,
    ("a40", 4): 18.346,
    ("a40", 8): 18.179,
}
ROOM = {"a100": 4, "v100": 16, "a40": 16}


@pytest.mark.data
def test_speeds_are_looked_up_as_by_the_authors(data: Callable[[str], Path]) -> None:
    folder = data("arena")

    def bert(kind: str, nodes: int, per_node: int) -> float:
        return find_speed(folder, "bert", "1.3B", 256, kind, nodes, per_node)

    a100 = [bert("a100", *place) for place in ((1, 2), (1, 4), (2, 2), (4, 1))]
    assert a100 == pytest.approx([23.790, 46.391, 46.372, 37.577], abs=5e-4)
    v100 = [bert("v100", 1, n) for n in (2, 4, 8)]
    assert v100 == pytest.approx([11.661, 17.271, 35.466], abs=5e-4)
    a40 = [bert("a40", *place) for place in ((1, 2), (2, 2), (4, 2), (1, 1))]
    assert a40 == pytest.approx([10.851, 18.346, 18.179, 0.0], abs=5e-4)


@pytest.mark.data
def test_e1_baselines_need_the_memory_of_plain_data_parallelism(
    data: Callable[[str], Path],
) -> None:
    folder = data("arena")

    assert not fits_plain(folder, "bert", "1.3B", 256, "v100", 2)
    assert fits_plain(folder, "bert", "1.3B", 256, "a100", 2)


@pytest.mark.data
def test_no_job_of_a_trace_is_left_out(data: Callable[[str], Path]) -> None:
    trace = read_trace(data("arena/trace_pai.csv"))

    assert len(trace.jobs) == 125
    assert {job.model for job, _ in trace} <= read_table(data("arena")).batches.keys()
    assert cluster().gpus == 1280


def test_e2_the_largest_gain_is_another_kind() -> None:
    standing = AllocationTrial({0: ("v100", 4)}, ROOM)

    first = climb(standing, [BERT], (), 1)

    assert first.at == {0: ("a100", 4)}
    gains = [BERT[to] - BERT["v100", 4] for to in (("a100", 4), ("v100", 8), ("a40", 4))]
    assert gains == pytest.approx([29.120, 18.195, 1.075], abs=1e-3)


def test_e3_who_loses_least_is_halved() -> None:
    standing = AllocationTrial({0: ("v100", 8), 1: ("a100", 4)}, {"a100": 0, "v100": 0})
    small = {("v100", 4): 17.271, ("a100", 4): 46.391, ("a100", 2): 23.79}

    room = find_room(standing, 2, ("v100", 4), [BERT, BERT, small], (), 1)

    assert room is not None
    assert room.at[0] == ("v100", 4)
    assert room.at[1] == ("a100", 4)
    assert room.at[2] == ("v100", 4)


def test_e4_more_gpus_that_are_no_faster_are_not_taken() -> None:
    alone = {size: speed for size, speed in BERT.items() if size[0] == "a40"}

    assert climb(AllocationTrial({0: ("a40", 4)}, {"a40": 12}), [alone], (), 10).at == {
        0: ("a40", 4)
    }


def test_a_job_that_may_not_be_changed_is_not_halved() -> None:
    standing = AllocationTrial({0: ("v100", 8)}, {"v100": 0})

    assert find_room(standing, 1, ("v100", 8), [BERT, {("v100", 8): 1.0}], {0}, 3) is None


# ---- whole decisions

PLANS = PlanTable(
    [
        *(Measured("bert", kind, None, 1, gpus, 256 / rate) for (kind, gpus), rate in BERT.items()),
        Measured("gpt", "v100", Execution(1, 4, 1), 1, 4, 2.0),
        Measured("gpt", "v100", Execution(1, 2, 2), 1, 4, 1.0),
        Measured("gpt", "v100", Execution(2, 1, 2), 1, 4, 4.0),
    ],
    {"bert": 256, "gpt": 32},
)


def bert(name: str, gpus: int, kinds: tuple[str, ...] = ()) -> Job:
    return Job(JobId(name), demand=Demand(gpus, 1, 16, kinds), model="bert")


def seen(machines: str, *jobs: Job) -> View:
    view = view_of(parse_cluster(machines), *jobs)
    return with_knowledge(view, beliefs=OwnPlans(PLANS), plans=KnownPlans(PLANS))


def held(policy: Arena, view: View) -> dict[str, tuple[str, int]]:
    changes = policy.decide(view).changes
    return {job: (view.cluster.kind_of(on), on.gpus) for job, on in changes.items() if on}


def test_jobs_start_where_they_asked_and_grow_into_what_is_free() -> None:
    view = seen("1x8:v100+1x4:a100", bert("one", 4), bert("two", 4, ("v100",)))

    assert held(Arena(), view) == {"one": ("a100", 4), "two": ("v100", 8)}
    assert held(Arena(scaling=False), view) == {"one": ("a100", 4), "two": ("v100", 4)}


def test_a_newcomer_is_halved_where_there_is_no_more_room() -> None:
    view = seen("1x4:v100", bert("one", 4), bert("two", 4))

    assert held(Arena(), view) == {"one": ("v100", 2), "two": ("v100", 2)}


def test_nobody_overtakes_where_that_is_not_wanted() -> None:
    large = Job(JobId("large"), demand=Demand(8, 8, 8), model="bert")
    view = seen("1x4:v100", large, bert("small", 2))

    assert held(Arena(), view) == {"small": ("v100", 4)}
    assert held(Arena(overtake=False), view) == {}


def test_a_job_that_declares_plans_is_told_the_best_of_the_fastest_cell() -> None:
    plans = (Execution(), Execution(tensor=4), Execution(tensor=2, pipeline=2))
    gpt = Job(JobId("gpt"), demand=Demand(4), model="gpt", plans=plans)

    changes = Arena().decide(seen("1x4:v100", gpt)).changes

    on = changes[JobId("gpt")]
    assert on is not None
    assert on.plan == Execution(1, 2, 2)


def test_a_model_that_needs_more_than_the_most_gets_the_least_that_holds_it() -> None:
    plans = (Execution(tensor=4),)
    wide = Job(JobId("wide"), demand=Demand(2, 1, 16), model="gpt", plans=plans)

    view = seen("4x4:v100", wide, bert("small", 2))

    assert held(Arena(max_gpus=2), view)["wide"] == ("v100", 4)


def test_speeds_count_as_they_are_or_as_parts_of_a_jobs_best() -> None:
    # Doubled, "fast" gains 6 samples/s, a twentieth of its best; "slow" gains 4, half of its own.
    plans = PlanTable(
        [
            Measured("fast", "v100", None, 1, 2, 1 / 114),
            Measured("fast", "v100", None, 1, 4, 1 / 120),
            Measured("slow", "v100", None, 1, 2, 1 / 4),
            Measured("slow", "v100", None, 1, 4, 1 / 8),
        ],
        {"fast": 1, "slow": 1},
    )
    jobs = [Job(JobId(name), demand=Demand(2, 2, 4), model=name) for name in ("fast", "slow")]
    view = view_of(parse_cluster("1x6:v100"), *jobs)
    view = with_knowledge(view, beliefs=OwnPlans(plans), plans=KnownPlans(plans))

    assert held(Arena(), view) == {"fast": ("v100", 4), "slow": ("v100", 2)}
    assert held(Arena(normalised=True), view) == {"fast": ("v100", 2), "slow": ("v100", 4)}
