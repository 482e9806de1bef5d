"""The worked examples of Rubick (MLSys 2025), its fits, and its decisions on small clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.plan_tables import KnownPlans, Measured, OwnPlans, PlanTable

from weft.core.events.event import Decided, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Config, Demand, Job, JobId, Slice, Tier
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.perf.linear import LinearBeliefs
from weft.perf.plans.learnt import Coefficients, PlanLaw
from weft.testing.build import cluster_of, view_of, with_knowledge
from weft_papers.rubick.policy import Rubick, RubickMemory, SizeLadder, climb
from weft_papers.rubick.published.data import KIND, read_laws, read_models
from weft_papers.rubick.published.fits import PRINTED, fit_errors

LLAMA = PlanLaw(
    6426.26171875,
    8,
    1000.0,
    0.96,
    150.0,
    Coefficients(2.0, 10.0, 0.03, 4.0, 1.04927576, 1.119206693, 1000.0),
    4096.0 * 2048.0,
    32,
)
BERT = PlanLaw(
    320.71862983703613,
    32,
    225.0,
    64.0,
    119.4879085392442,
    Coefficients(
        1.7762507345127174,
        1.1410390978600897,
        1e-8,
        4.400603962116795,
        15.257464643432971,
        37.288983000053264,
        26.221881110226107,
    ),
)
FORWARD = (225.0, 125.0, 69.4444, 38.5802)
COUNTS = (1, 2, 4, 8)


def test_bert_by_data_parallelism_takes_as_long_as_by_hand() -> None:
    took = BERT.replicated_ms(Execution(4), 69.4444)

    assert took == pytest.approx(244.8039, abs=1e-3)
    assert 32.0 / took * 1000.0 == pytest.approx(130.717, abs=1e-3)


@pytest.mark.parametrize(
    ("plan", "threads", "expected"),
    [
        (Execution(), 1.0, (666.136, 394.637, 244.804, 162.128)),
        (Execution(checkpointing=True), 1.0, (846.136, 494.637, 300.359, 192.993)),
        (Execution(offload=True), 4.0, (1096.354, 628.390, 380.325, 248.534)),
    ],
)
def test_bert_on_one_to_eight_gpus(
    plan: Execution, threads: float, expected: tuple[float, ...]
) -> None:
    plans = [plan.on(count) or plan for count in COUNTS]

    times = [
        BERT.replicated_ms(sized, forward, threads=threads, recompute=1.8)
        for sized, forward in zip(plans, FORWARD, strict=True)
    ]

    assert times == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("pipeline", "tensor", "nodes", "per_node", "forward", "expected"),
    [
        (1, 8, 2, 8, 300.0, 1116.2945),
        (1, 8, 4, 8, 270.0, 930.738),
        (2, 8, 2, 8, 380.0, 1548.1918),
        (4, 4, 4, 4, 740.0, 2611.9785),
        (8, 8, 8, 8, 494.0, 1919.5549),
        (2, 4, 4, 4, 534.0, 1803.7878),
    ],
)
def test_llama_by_tensor_and_pipeline_parallelism(
    pipeline: int, tensor: int, nodes: int, per_node: int, forward: float, expected: float
) -> None:
    plan = Execution(nodes * per_node // tensor // pipeline, tensor, pipeline)

    assert LLAMA.divided_ms(plan, forward, nodes, per_node) == pytest.approx(expected, abs=1e-3)


@pytest.mark.data
def test_sensitivity_is_as_in_the_authors_table(data: Callable[[str], Path]) -> None:
    laws = read_laws(data("rubick"))
    plans = (Execution(zero=2), Execution(offload=True), Execution())

    def best(model: str, gpus: int) -> float:
        law = laws[model]
        sized = [plan.on(gpus) for plan in plans]
        fits = [plan for plan in sized if plan is not None and law.allows_plan(plan)]
        return max((law.batch / law.step_ms(plan) * 1000.0 for plan in fits), default=0.0)

    assert [best("bert", n) for n in COUNTS] == pytest.approx(
        [48.0383, 81.0872, 129.4518, 196.6691], abs=1e-3
    )
    assert [best("gpt2", n) for n in COUNTS] == pytest.approx(
        [4.2600, 8.4009, 16.3446, 31.0020], abs=1e-3
    )
    assert [best("llama7", n) for n in COUNTS] == pytest.approx(
        [0.1390, 0.2732, 4.4461, 5.4999], abs=1e-3
    )
    assert best("bert", 3) == 0.0  # a batch of 32 is not shared by three
    assert read_models(data("rubick"))["llama7"]["max_samples_per_gpu"]["DP"]["other"] == 0


@pytest.mark.data
@pytest.mark.parametrize("model", sorted(PRINTED))
def test_fits_are_within_a_tenth_of_a_point_of_the_printed_table(
    data: Callable[[str], Path], model: str
) -> None:
    errors = fit_errors(data("rubick"), model)

    for plan, printed in PRINTED[model].items():
        assert errors[plan] == pytest.approx(printed, abs=0.1), (model, plan)


# Fig. 8: seconds of an update of RoBERTa and of T5 with 3 billion parameters on a node of four.
TWO_JOBS = PlanTable(
    [
        *(
            Measured("roberta", KIND, Execution(n, zero=2), 1, n, seconds)
            for n, seconds in ((1, 0.68361435), (2, 0.697693418), (4, 0.373935671))
        ),
        *(
            Measured("t5_3B", KIND, Execution(n, zero=2, offload=True), 1, n, seconds)
            for n, seconds in ((1, 4.0345), (2, 3.2757), (4, 2.8666))
        ),
        *(
            Measured("t5_3B", KIND, Execution(1, n), 1, n, seconds)
            for n, seconds in ((2, 3.567), (3, 0.9301), (4, 0.8233))
        ),
    ],
    {"roberta": 64, "t5_3B": 16},
)
ROBERTA = Job(
    JobId("roberta"),
    demand=Demand(2, 1, 4),
    model="roberta",
    plans=(Execution(zero=2),),
    tier=Tier.OPPORTUNISTIC,
)
T5 = Job(
    JobId("t5"),
    demand=Demand(2, 1, 4),
    model="t5_3B",
    plans=(Execution(zero=2, offload=True), *(Execution(tensor=n) for n in (2, 3, 4))),
    tier=Tier.OPPORTUNISTIC,
)


def decide(*jobs: Job) -> dict[str, tuple[int, str]]:
    view = with_knowledge(
        view_of(cluster_of(4, kind=KIND), *jobs),
        beliefs=OwnPlans(TWO_JOBS),
        plans=KnownPlans(TWO_JOBS),
    )
    plan = Rubick().decide(view)
    held = {job: on for job, on in plan.changes.items() if on is not None}
    return {str(job): (on.gpus, on.plan.text if on.plan else "") for job, on in held.items()}


def test_two_jobs_on_four_gpus_are_divided_as_in_the_paper() -> None:
    plan = decide(ROBERTA, T5)

    assert plan == {"roberta": (1, "dp1-zero2"), "t5": (3, "dp1-tp3")}
    normalised = 0.373935671 / 0.68361435 + 0.8233 / 0.9301
    assert round(normalised, 2) == pytest.approx(1.43, abs=0.011)


def test_a_size_that_is_no_faster_is_not_given() -> None:
    assert decide(ROBERTA) == {"roberta": (4, "dp4-zero2")}
    table = KnownPlans(TWO_JOBS)
    assert [table.choices(ROBERTA, Config(KIND, 1, n))[0].rate for n in (1, 2)] == sorted(
        (64 / 0.68361435, 64 / 0.697693418), reverse=True
    )


def test_a_guaranteed_job_is_as_fast_as_with_what_it_asked_for() -> None:
    firm = Job(JobId("firm"), demand=Demand(4, 1, 4), model="t5_3B", plans=T5.plans)

    plan = decide(firm, ROBERTA)

    # What it asked for is four GPUs by offload: three by tensor parallelism are faster.
    assert plan["firm"][0] == 3
    assert plan["roberta"] == (1, "dp1-zero2")


def test_a_guaranteed_job_gets_what_it_asked_for_where_fewer_would_gain_more() -> None:
    firm = Job(JobId("firm"), demand=Demand(4, 1, 4), model="roberta", plans=ROBERTA.plans)

    # Nothing below four GPUs is as fast; without the promise three of them would go to T5.
    assert decide(firm, T5) == {"firm": (4, "dp4-zero2")}


def test_plans_that_do_not_fit_are_never_chosen() -> None:
    known = KnownPlans(TWO_JOBS)
    odd = Job(JobId("odd"), demand=Demand(1, 1, 4), model="t5_3B", plans=(Execution(tensor=3),))

    assert not known.choices(odd, Config(KIND, 1, 4))
    assert [choice.plan for choice in known.choices(odd, Config(KIND, 1, 3))] == [Execution(1, 3)]
    assert decide(odd) == {"odd": (3, "dp1-tp3")}


def curve(model: str, *seconds: float) -> list[Measured]:
    """A model on one, two, ... GPUs, by data parallelism."""
    return [
        Measured(model, KIND, Execution(n, zero=2), 1, n, taken)
        for n, taken in enumerate(seconds, start=1)
    ]


def divide(gpus: int, table: PlanTable, *jobs: Job) -> dict[str, int]:
    """GPUs by job."""
    view = with_knowledge(
        view_of(cluster_of(gpus, kind=KIND), *jobs),
        beliefs=OwnPlans(table),
        plans=KnownPlans(table),
    )
    changes = Rubick().decide(view).changes
    return {str(job): on.gpus for job, on in changes.items() if on is not None}


def loose(name: str, gpus: int = 4) -> Job:
    plans = (Execution(zero=2),)
    demand = Demand(1, 1, gpus)
    return Job(JobId(name), demand=demand, model=name, plans=plans, tier=Tier.OPPORTUNISTIC)


@pytest.mark.parametrize(("seconds", "gpus"), [(0.995, 1), (0.9, 2)])
def test_a_size_that_is_hardly_faster_is_not_given(seconds: float, gpus: int) -> None:
    table = PlanTable([*curve("flat", 1.0, seconds)], {"flat": 12})

    assert divide(2, table, loose("flat", 2)) == {"flat": gpus}


def test_gpus_go_where_each_of_them_gains_most() -> None:
    # Of five three are left. "wide" gains 0.6 by three more, 0.2 each; "thin" 0.4 by one.
    table = PlanTable(
        [*curve("wide", 2.5, 2.5, 2.5, 1.0), *curve("thin", 1 / 0.6, 1.0), *curve("x", 9, 9, 1)],
        {"wide": 12, "thin": 12, "x": 12},
    )
    jobs = loose("wide", 4), loose("thin", 2)
    firm = replace(loose("x"), tier=Tier.GUARANTEED, demand=Demand(3, 3, 3))

    assert divide(8, table, *jobs, firm) == {"wide": 1, "thin": 2, "x": 3}
    assert divide(8, table, *jobs) == {"wide": 4, "thin": 2}


def test_guaranteed_jobs_start_in_order_of_submission_and_before_all_others() -> None:
    # The second would gain more for its GPU, and the last is steepest of all.
    table = PlanTable(
        [*curve("first", 9.0, 1.0), *curve("second", 1.0), *curve("last", 0.5)],
        {"first": 12, "second": 12, "last": 12},
    )

    def firm(name: str, gpus: int) -> Job:
        return replace(loose(name), tier=Tier.GUARANTEED, demand=Demand(gpus, gpus, gpus))

    jobs = loose("last", 1), firm("first", 2), firm("second", 1)
    assert divide(2, table, *jobs) == {"first": 2}
    assert divide(3, table, *jobs) == {"first": 2, "second": 1}
    assert divide(4, table, *jobs) == {"first": 2, "second": 1, "last": 1}


def test_a_speed_counts_as_a_part_of_the_best_on_any_kind() -> None:
    # "both" is nearly as fast on the old kind, "one" has a tenth of its speed there.
    rows = [
        Measured(model, kind, Execution(1, zero=2), 1, 1, seconds)
        for model, kind, seconds in (
            ("both", "new", 1.0),
            ("both", "old", 1.25),
            ("one", "new", 1.0),
            ("one", "old", 10.0),
        )
    ]
    table = PlanTable(rows, {"both": 12, "one": 12})
    view = with_knowledge(
        view_of(parse_cluster("1x1:old+1x1:new"), loose("one", 1), loose("both", 1)),
        beliefs=OwnPlans(table),
        plans=KnownPlans(table),
    )

    after = view.after(Rubick().decide(view))

    assert {job: view.cluster.kind_of(on) for job, on in after.items()} == {
        "one": "new",
        "both": "old",
    }


def test_who_gains_most_with_its_first_gpu_starts_first() -> None:
    # With its first GPU `early` has six tenths of its best speed and `late` three, whose second
    # GPU brings more than anything else.
    table = PlanTable(
        [
            *curve("late", 1 / 0.3, 1.0),
            *curve("early", 1 / 0.6, 1 / 0.8, 1 / 0.9, 1.0),
            *curve("firm", 9.0, 6.0, 1.0),
        ],
        {"late": 12, "early": 12, "firm": 12},
    )
    firm = Job(JobId("firm"), demand=Demand(3, 3, 3), model="firm", plans=(Execution(zero=2),))

    assert divide(4, table, loose("late", 2), loose("early"), firm) == {"firm": 3, "early": 1}


def firm(name: str, gpus: int, most: int) -> Job:
    plans = (Execution(zero=2),)
    return Job(JobId(name), demand=Demand(gpus, 1, most), model=name, plans=plans)


def test_a_promise_is_kept_by_a_size_that_is_hardly_slower() -> None:
    # It asked for two GPUs, which are half a percent faster than one; four are twice as fast.
    table = PlanTable(
        [*curve("firm", 1.0, 0.995, 0.9, 0.5), *curve("next", 1.0, 0.5)], {"firm": 12, "next": 12}
    )

    assert divide(4, table, firm("firm", 2, 4), firm("next", 1, 2)) == {"firm": 1, "next": 2}


def test_where_no_size_keeps_a_promise_the_fastest_comes_closest() -> None:
    # The promise is of the new kind; on two old GPUs it has four fifths of that, on one two.
    old = [
        Measured("late", "old", Execution(n, zero=2), 1, n, seconds)
        for n, seconds in ((1, 2.5), (2, 1.25))
    ]
    table = PlanTable([*curve("late", 1.0), *curve("early", 1.0), *old], {"late": 12, "early": 12})
    view = with_knowledge(
        view_of(parse_cluster(f"1x1:{KIND}+1x2:old"), firm("early", 1, 1), firm("late", 1, 2)),
        beliefs=OwnPlans(table),
        plans=KnownPlans(table),
    )

    after = view.after(Rubick().decide(view))

    held = {job: (view.cluster.kind_of(on), on.gpus) for job, on in after.items()}
    assert held == {"early": (KIND, 1), "late": ("old", 2)}


def test_no_job_gets_more_than_the_most_there_may_be() -> None:
    grows = Job(JobId("grows"), demand=Demand(1, 1, 128))
    view = with_knowledge(view_of("16x8:v100", grows), beliefs=LinearBeliefs())

    assert view.after(Rubick().decide(view))[grows.id].gpus == 64
    assert view.after(Rubick(max_gpus=8).decide(view))[grows.id].gpus == 8


@pytest.mark.parametrize(
    ("runs", "comes", "stopped"),
    [
        (Tier.OPPORTUNISTIC, Tier.GUARANTEED, True),
        (Tier.OPPORTUNISTIC, Tier.OPPORTUNISTIC, False),
        (Tier.GUARANTEED, Tier.GUARANTEED, False),
    ],
)
def test_who_runs_on_its_last_gpu_is_stopped_for_a_promise_alone(
    runs: Tier, comes: Tier, *, stopped: bool
) -> None:
    # For each GPU the newcomer, on both, gains half of its best speed, and who runs loses 0.3.
    table = PlanTable(
        [*curve("early", 1 / 0.3, 1.0), *curve("late", 9.0, 1.0)], {"early": 12, "late": 12}
    )
    first = replace(loose("early", 2), tier=runs)
    second = replace(loose("late"), tier=comes, demand=Demand(2, 2, 2))
    state = State(cluster_of(2, kind=KIND))
    held = Allocation((state.free.slice_of(0, 0b1),), plan=Execution(1, zero=2))
    for event in (Submitted(first), Decided(1, {first.id: held}), Started(first.id, 1)):
        state.fold(0.0, event)
    state.fold(9.0, Reported(first.id, 1, Report(step_s=1.0)))
    state.fold(9.0, Submitted(second))
    known = Knowledge(beliefs=OwnPlans(table), plans=KnownPlans(table))

    plan = Rubick().decide(View(100_000.0, state.table, state.cluster, state.free, known))

    assert (plan.changes.get(first.id, held) is None) == stopped
    assert (second.id in plan.changes) == stopped


def test_sizes_that_bring_no_more_speed_are_no_rungs_of_a_curve() -> None:
    sizes = tuple(Config(KIND, 1, n) for n in (1, 2, 3, 4, 5))
    rates = np.array([0.0, 10.0, 10.05, 9.0, 12.0])  # one that cannot run, and three of one speed

    assert climb(sizes, rates, [0, 1, 2, 3, 4]) == ((sizes[1], sizes[4]), (10.0, 12.0))


def test_speeds_never_fall_along_a_curve() -> None:
    known = KnownPlans(TWO_JOBS)
    rates = [known.choices(T5, Config(KIND, 1, n))[0].rate for n in (1, 2, 3, 4)]

    assert (np.diff(rates) > 0.0).all()


@pytest.mark.parametrize(
    ("plan", "gain", "gpus"),
    [
        (Execution(), 0.84, 2),
        (Execution(), 0.86, 1),
        (Execution(offload=True), 0.84, 2),
        (Execution(offload=True), 0.85, 1),
        (Execution(checkpointing=True), 0.86, 2),
        (Execution(checkpointing=True), 0.9, 1),
    ],
)
def test_speeds_by_the_law_divide_gpus_among_two_jobs(
    plan: Execution, gain: float, gpus: int
) -> None:
    # By the law BERT is 1.850 times as fast on two GPUs as on one, 1.845 times with offload and
    # 1.884 times where it computes activations again. The third GPU goes to who gains more by it.
    sized = [(n, scaled) for n in (1, 2) if (scaled := plan.on(n)) is not None]
    rows = [
        Measured("bert", KIND, scaled, 1, n, BERT.step_ms(scaled, threads=4.0) / 1e3)
        for n, scaled in sized
    ]
    table = PlanTable([*rows, *curve("other", 1.0, 1 / (1.0 + gain))], {"bert": 32, "other": 12})
    bert = replace(loose("bert", 2), plans=(plan,))

    assert divide(3, table, bert, loose("other", 2))["bert"] == gpus


def running(cluster: str, *jobs: Job, memory: RubickMemory | None = None) -> View:
    """Each job holds the first GPU of a node of its own since 0, and it is 1,000 s later."""
    machines = parse_cluster(cluster)
    state = State(machines)
    for job, node in zip(jobs, machines.nodes, strict=False):
        state.fold(0.0, Submitted(job))
        state.fold(0.0, Decided(1, {job.id: Allocation((Slice(node.id, (0,)),))}))
        state.fold(0.0, Started(job.id, 1))
    known = Knowledge(beliefs=LinearBeliefs())
    return View(1000.0, state.table, machines, state.free, knowledge=known, memory=memory)


@pytest.mark.parametrize(("changes", "gpus"), [(0, 4), (1, 4), (2, 1)])
def test_a_job_that_changes_took_much_of_stays_as_it_is(changes: int, gpus: int) -> None:
    """A restart costs 30 s: one is 3 % of 1,000 s, and two are more."""
    grows = Job(JobId("grows"), demand=Demand(1, 1, 4))
    view = running("1x4:v100", grows, memory=RubickMemory({grows.id: changes}))

    plan = Rubick().decide(view)

    assert view.after(plan)[grows.id].gpus == gpus
    assert plan.memory == RubickMemory({grows.id: max(changes, 1) if gpus == 1 else changes + 1})


def test_a_job_that_was_never_changed_may_be_changed_at_once() -> None:
    grows = Job(JobId("grows"), demand=Demand(1, 1, 4))
    view = replace(running("1x4:v100", grows), now=100.0)

    assert view.after(Rubick().decide(view))[grows.id].gpus == 4


def test_a_job_that_makes_room_as_it_is_was_not_changed() -> None:
    small = [Job(JobId(f"small-{i}"), demand=Demand(1)) for i in range(2)]
    view = running("2x2:v100", *small)
    view.table.add(Job(JobId("pair"), demand=Demand(2)), 2)

    plan = Rubick().decide(view)

    moved = [job.id for job in small if job.id in plan.changes]
    assert len(view.after(plan)) == 3
    assert len(moved) == 1
    assert plan.memory == RubickMemory()


# ---- Kinds: running jobs move to idle GPUs of a kind that is faster for them


def kinds_after(
    seconds: dict[str, tuple[float, float]], new: int, *, changes: int = 0, gpus: int = 1
) -> dict[str, str]:
    """The kind that each model's job holds after a decision; each runs on `old`, `new` is idle.

    Seconds of a step are by model, on the old kind and on the new one.
    """
    plan = Execution(gpus, zero=2)
    rows = [
        Measured(model, kind, plan, 1, gpus, took)
        for model, both in seconds.items()
        for kind, took in zip(("old", "new"), both, strict=True)
    ]
    table = PlanTable(rows, dict.fromkeys(seconds, 12), restart_cost=12.0)
    machines = parse_cluster(f"{len(seconds)}x{gpus}:old+1x{new}:new")
    old = [node for node in machines.nodes if node.kind == "old"]
    jobs = [replace(loose(model, gpus), demand=Demand(gpus)) for model in seconds]
    state = State(machines)
    for job, node in zip(jobs, old, strict=True):
        held = Allocation((Slice(node.id, tuple(range(gpus))),), plan=plan)
        for event in (Submitted(job), Decided(1, {job.id: held}), Started(job.id, 1)):
            state.fold(0.0, event)
    known = Knowledge(beliefs=OwnPlans(table), plans=KnownPlans(table))
    memory = RubickMemory({job.id: changes for job in jobs if changes})
    view = View(1000.0, state.table, machines, state.free, known, memory=memory)

    decided = Rubick().decide(view)

    after = {str(job): machines.kind_of(on) for job, on in view.after(decided).items()}
    moved = {JobId(job): changes + 1 for job, kind in after.items() if kind == "new"}
    assert decided.memory == RubickMemory({**memory.changes, **moved})
    return after


@pytest.mark.parametrize(("new_s", "kind"), [(0.1, "new"), (0.985, "new"), (0.995, "old")])
def test_a_job_moves_to_idle_gpus_of_a_kind_that_is_faster(new_s: float, kind: str) -> None:
    assert kinds_after({"slow": (1.0, new_s)}, 1) == {"slow": kind}


def test_a_move_to_another_kind_is_a_change_like_any_other() -> None:
    # A restart costs 12 s: two are 2.4 % of 1,000 s and three 3.6 %.
    assert kinds_after({"slow": (1.0, 0.1)}, 1, changes=2) == {"slow": "new"}
    assert kinds_after({"slow": (1.0, 0.1)}, 1, changes=3) == {"slow": "old"}


def test_the_faster_kind_goes_to_who_gains_most_by_it() -> None:
    # The first loses half of its best speed where it is, the second nine tenths.
    seconds = {"first": (1.0, 0.5), "second": (1.0, 0.1)}

    assert kinds_after(seconds, 1) == {"first": "old", "second": "new"}
    assert kinds_after(seconds, 2) == {"first": "new", "second": "new"}


def test_a_job_stays_where_the_faster_kind_has_too_few_gpus() -> None:
    assert kinds_after({"pair": (1.0, 0.1)}, 1, gpus=2) == {"pair": "old"}
    assert kinds_after({"pair": (1.0, 0.1)}, 2, gpus=2) == {"pair": "new"}


def test_of_kinds_a_move_is_worth_what_each_gpu_gains() -> None:
    """The pair gains 0.8 of its best speed by two GPUs, the other 0.7 by one."""
    seconds = {"pair": (5.0, 1.0), "single": (10.0 / 3.0, 1.0)}
    sizes = {"pair": 2, "single": 1}
    rows = [
        Measured(model, kind, Execution(sizes[model], zero=2), 1, sizes[model], took)
        for model, both in seconds.items()
        for kind, took in zip(("old", "new"), both, strict=True)
    ]
    table = PlanTable(rows, dict.fromkeys(seconds, 12), restart_cost=12.0)
    state = State(parse_cluster("2x2:old+1x2:new"))
    for number, (model, gpus) in enumerate(sizes.items()):
        job = replace(loose(model, gpus), demand=Demand(gpus))
        plan = Execution(gpus, zero=2)
        slices = (Slice(state.cluster.nodes[number].id, tuple(range(gpus))),)
        held = Allocation(slices, plan=plan)
        for event in (Submitted(job), Decided(1, {job.id: held}), Started(job.id, 1)):
            state.fold(0.0, event)
    known = Knowledge(beliefs=OwnPlans(table), plans=KnownPlans(table))
    view = View(1000.0, state.table, state.cluster, state.free, known)

    after = view.after(Rubick().decide(view))

    kinds = {str(job): state.cluster.kind_of(on) for job, on in after.items()}
    assert kinds == {"pair": "old", "single": "new"}


def test_the_first_rung_is_gained_from_nothing() -> None:
    ladder = SizeLadder((Config(KIND, 1, 2), Config(KIND, 1, 3)), (0.6, 1.0), -1)

    assert ladder.slope(-1, 0) == pytest.approx(0.3)
    assert ladder.slope(0, 1) == pytest.approx(0.4)


def test_who_loses_least_by_its_last_step_makes_room_for_a_promise() -> None:
    """Half of its GPUs are worth 0.2 to one, and to the other 0.4, whose first ones bring less."""
    table = PlanTable(
        [
            *curve("steep", 1 / 0.5, 1 / 0.6, 1 / 0.6, 1.0),
            *curve("flat", 1 / 0.2, 1 / 0.8, 1 / 0.8, 1.0),
            *curve("firm", 1.0),
        ],
        {"steep": 12, "flat": 12, "firm": 12},
    )
    state = State(cluster_of(8, kind=KIND))
    for number, name in enumerate(("steep", "flat")):
        job = loose(name)
        held = Allocation(
            (state.free.slice_of(0, 0b1111 << 4 * number),), plan=Execution(4, zero=2)
        )
        for event in (Submitted(job), Decided(1, {job.id: held}), Started(job.id, 1)):
            state.fold(0.0, event)
        state.fold(9.0, Reported(job.id, 1, Report(step_s=1.0)))
    state.fold(9.0, Submitted(replace(loose("firm", 1), tier=Tier.GUARANTEED)))
    known = Knowledge(beliefs=OwnPlans(table), plans=KnownPlans(table))
    view = View(100_000.0, state.table, state.cluster, state.free, known)

    after = view.after(Rubick().decide(view))

    assert {str(job): on.gpus for job, on in after.items()} == {"steep": 4, "flat": 2, "firm": 1}
