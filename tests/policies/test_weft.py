"""Our own policy: what it gives to whom, what it says of it, and whom it hurries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from tests.reports import training_report
from weft.app.insight.explain import explain
from weft.app.insight.present import Present
from weft.core.errors import InvalidConfig
from weft.core.events.event import Cancelled, Decided, Reported, Resizable, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, BatchRange, Demand, Job, JobId, Slice
from weft.core.model.trace import Trace, Truth
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import DeviceSharing
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import build
from weft.perf.change_costs import StatedCosts
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.learnt_costs import LearntCosts
from weft.perf.linear import LinearBeliefs
from weft.pieces.order.finish_time import finish_time_fairness, hasten_late
from weft.pieces.size.change_seconds import (
    HoldTimes,
    Worth,
    change_seconds,
    find_hurried,
    read_costs,
)
from weft.pieces.size.choice_reasons import say_gave_way
from weft.pieces.size.configs import find_held, valid_configs
from weft.policies.weft import values
from weft.policies.weft.policy import LastDecision, Weft
from weft.policies.weft.values import Values, expected_speeds, find_goodputs
from weft.solve.multiple_choice import Answer
from weft.testing import view_of

CLUSTER = parse_cluster("2x4:v100")


def job(name: str, model: str = "bert", least: int = 1, most: int = 8, **more: object) -> Job:
    wish = Demand(least, least, most)
    return Job(JobId(name), demand=wish, model=model, batch=BatchRange(64, 1024, 64), **more)  # type: ignore[arg-type]


def report(replicas: int, progress: float, step_s: float = 0.1) -> Report:
    return training_report(replicas, progress, step_s, 0.9 * step_s, grad_var=50.0, work=1e6)


def scheduler(*jobs: Job, policy: Weft | None = None) -> Scheduler:
    knowledge = Knowledge(
        beliefs=LinearBeliefs(), pooled=PooledBeliefs(), costs=LearntCosts(lambda _: 30.0)
    )
    made = Scheduler(policy or Weft(), CLUSTER, knowledge=knowledge)
    for job in jobs:
        made.apply_event(0.0, Submitted(job))
    return made


def run(made: Scheduler, name: str, node: int, gpus: tuple[int, ...]) -> None:
    """Let a job run on these devices since 0."""
    on = Allocation((Slice(CLUSTER.nodes[node].id, gpus),))
    made.apply_event(0.0, Decided(1, {JobId(name): on}))
    made.apply_event(0.0, Started(JobId(name), 1))


def test_a_job_is_left_alone_when_its_end_is_nearer_than_a_restart() -> None:
    made = scheduler(job("a"))
    run(made, "a", 0, (0,))
    made.apply_event(30.0, Reported(JobId("a"), 1, report(1, 0.0)))
    made.apply_event(300.0, Reported(JobId("a"), 1, report(1, 0.97)))

    plan = made.propose(301.0)

    assert not plan.changes


def test_the_same_job_grows_while_there_is_much_to_do() -> None:
    made = scheduler(job("a"))
    run(made, "a", 0, (0,))
    made.apply_event(30.0, Reported(JobId("a"), 1, report(1, 0.0)))
    made.apply_event(300.0, Reported(JobId("a"), 1, report(1, 0.02)))

    on = made.propose(301.0).changes[JobId("a")]

    assert on is not None
    assert on.gpus > 1


def test_a_job_that_may_not_be_stopped_keeps_what_it_has() -> None:
    rigid = [job(f"j{i}") for i in range(20)]
    made = scheduler(job("a", preemptible=False), *rigid)
    run(made, "a", 0, (0, 1, 2, 3))

    assert JobId("a") not in made.propose(100.0).changes


@pytest.mark.parametrize("may_be_stopped", [False, True])
def test_an_odd_size_is_kept_by_who_may_not_be_stopped_and_left_by_others(
    may_be_stopped: bool,
) -> None:
    made = scheduler(job("a", preemptible=may_be_stopped), *(job(f"j{i}") for i in range(20)))
    run(made, "a", 0, (0, 1, 2))  # three GPUs are none of the sizes it chooses from
    made.apply_event(30.0, Reported(JobId("a"), 1, report(3, 0.0)))
    made.apply_event(300.0, Reported(JobId("a"), 1, report(3, 0.02)))

    assert (JobId("a") in made.propose(301.0).changes) is may_be_stopped


@pytest.mark.parametrize(("most", "preemptible"), [(4, False), (8, True)], ids=["plain", "elastic"])
def test_who_may_not_be_stopped_is_not_moved_and_sizes_without_a_place_are_tried_once(
    monkeypatch: pytest.MonkeyPatch, most: int, *, preemptible: bool
) -> None:
    firm = [job(name, most=1, preemptible=False) for name in "ab"]
    gangs = [job(f"gang{i}", least=4, most=most, preemptible=preemptible) for i in range(9)]
    made = scheduler(*firm, *gangs, job("elastic", most=4))
    run(made, "a", 0, (0,))
    run(made, "b", 1, (0,))
    solve, asked = values.solve, []

    def count(values: Values, *more: Any) -> Answer:
        asked.append(values)
        return solve(values, *more)

    monkeypatch.setattr(values, "solve", count)

    plan = made.propose(100.0)

    assert {*plan.changes} == {"elastic"}
    assert len(asked) == 2  # with the gangs, and without all of them


def largest(model: str, *, pooled: bool) -> int:
    """GPUs that a new job of a model gets on 8 free ones after one that hardly gained by more."""
    made = scheduler(job("a"), policy=Weft(pooled=pooled))
    run(made, "a", 0, (0,))
    for at, done in ((30.0, 0.0), (300.0, 0.02)):
        made.apply_event(at, Reported(JobId("a"), 1, report(1, done)))
    made.apply_event(300.0, Cancelled(JobId("a")))
    made.apply_event(301.0, Submitted(job("b", model)))
    on = made.propose(302.0).changes[JobId("b")]
    return 0 if on is None else on.gpus


def test_what_is_known_of_a_model_is_used_for_its_next_job_unless_told_not_to() -> None:
    assert largest("bert", pooled=True) < largest("bert", pooled=False)


def test_a_model_nobody_knows_gets_what_it_asks_for_where_others_are_learnt_from() -> None:
    assert (largest("gpt", pooled=True), largest("gpt", pooled=False)) == (1, 8)


@pytest.mark.parametrize(("pooled", "gpus"), [(False, 1), (True, 4)])
def test_who_nobody_reported_of_begins_small_where_nothing_is_learnt_from_others(
    pooled: bool, gpus: int
) -> None:
    made = scheduler(job("a"), policy=Weft(pooled=pooled))
    made.knowledge = replace(made.knowledge, beliefs=FittedBeliefs())
    made.apply_event(1.0, Cancelled(JobId("a")))
    made.apply_event(2.0, Submitted(Job(JobId("b"), demand=Demand(4, 1, 8), model="gpt")))

    on = made.propose(3.0).changes[JobId("b")]

    assert on is not None
    assert on.gpus == gpus


def test_of_two_sizes_nobody_reported_of_the_smallest_is_the_only_one_believed() -> None:
    view, configs = view_of(8, Job(JobId("b"), demand=Demand(4, 1, 8))), valid_configs(CLUSTER)
    view = replace(view, knowledge=Knowledge(beliefs=FittedBeliefs()))

    goodput = find_goodputs(view, configs, pooled=False, shape=0.6)[0]

    assert {config.gpus for config, speed in zip(configs, goodput, strict=True) if speed} == {1}


@pytest.mark.parametrize(("half_life", "grows"), [({}, True), ({"half_life_s": 14400.0}, False)])
def test_how_often_gpus_were_lost_is_forgotten_by_half_in_two_hours(
    half_life: dict[str, float], grows: bool
) -> None:
    made = scheduler(job("a"))
    run(made, "a", 0, (0,))
    for at, done in ((30.0, 0.0), (7199.0, 0.02)):
        made.apply_event(at, Reported(JobId("a"), 1, report(1, done)))
    lost = LastDecision(holds=HoldTimes(lost={"v100/bert": 110.0}))  # two hours ago

    plan = Weft(**half_life).decide(replace(made.view(7200.0), memory=lost))  # type: ignore[arg-type]

    assert bool(plan.changes) is grows


def test_choices_are_told_in_words_and_in_figures_only_to_who_asks() -> None:
    short = Job(JobId("short"), demand=Demand(1, 1, 2), hints={"duration_s": 60.0})
    view = view_of(2, short, ("long", 2, 9000.0), ("other", 2, 9000.0))

    plan = Weft().decide(view)

    assert all(plan.reasons[name].startswith("starts on ") for name in plan.changes)
    waiting = next(name for name in ("short", "long", "other") if JobId(name) not in plan.changes)
    assert plan.reasons[JobId(waiting)] == ""  # why it waits is looked at when somebody asks
    figures = Weft().decide(replace(view, asked=frozenset({JobId(waiting)}))).reasons
    assert ": worth" in figures[JobId(waiting)]
    assert plan.numbers["price v100"] > 0.0


def test_a_job_that_gives_way_names_the_job_that_got_its_gpus() -> None:
    made = scheduler(job("old", least=8), job("new", least=1, most=8))
    run(made, "old", 0, (0, 1, 2, 3))
    view = made.view(100.0)
    taken = Allocation((Slice(view.cluster.nodes[0].id, (0, 1)),))

    reasons = say_gave_way(view, {0: None, 1: taken})

    assert (
        reasons[JobId("old")]
        == "gave way: its 4 v100 GPUs went to new; it goes on when there is room"
    )


def test_a_running_job_is_told_its_worth_the_price_and_the_runner_up() -> None:
    made = scheduler(job("a"), job("b"))
    run(made, "a", 0, (0, 1))
    made.apply_event(30.0, Reported(JobId("a"), 1, report(2, 0.0)))

    why = explain(Present.of(made, 300.0), JobId("a"))

    assert why.reason == "holds 2 v100 GPUs; it can use 1 to 8"
    assert "after the price; next" in why.numbers["figures"]
    assert "prices a GPU: v100" in why.numbers["figures"]


def hasten(left: tuple[float, float], bound: float) -> list[float]:
    """Two jobs that came a day ago, of which one runs."""
    made = scheduler(job("waits"), job("runs"))
    run(made, "runs", 0, (0,))
    made.apply_event(30.0, Reported(JobId("runs"), 1, report(1, 0.0)))
    view, configs = made.view(90_000.0), valid_configs(CLUSTER)
    goodput = made.knowledge.pooled.goodputs(view.table, configs)  # type: ignore[union-attr]
    weights: list[float] = hasten_late(view, configs, goodput, np.array(left), bound).tolist()
    return weights


def test_who_is_late_weighs_more_than_who_came_now() -> None:
    assert min(hasten((100.0, 100.0), 1.5)) > 1.0
    assert hasten((100.0, 100.0), 1e9) == [1.0, 1.0]


def test_who_has_hours_left_is_hastened_less_than_who_is_about_to_end() -> None:
    long, short = hasten((36_000.0, 60.0), 1.5)

    assert 1.0 < long < 0.5 * short  # though it is the later of the two


def test_a_first_start_that_is_not_over_costs_as_much_again() -> None:
    made = scheduler(job("starts"), job("trains"))
    costs = StatedCosts(Adaptive({}, 60.0), later=lambda _: 1.0)
    made.knowledge = replace(made.knowledge, costs=costs)
    for name, node in (("starts", 0), ("trains", 1)):
        run(made, name, node, (0,))
    made.apply_event(30.0, Reported(JobId("trains"), 1, report(1, 0.0)))
    view, configs = made.view(40.0), valid_configs(CLUSTER)

    seconds = change_seconds(view, configs, find_held(view, configs), read_costs(view))

    assert seconds.change.max(axis=1).tolist() == [60.0, 1.0]


def test_who_waits_is_late_by_what_an_equal_part_would_have_done_meanwhile() -> None:
    made = scheduler(job("waits"), job("runs"))
    run(made, "runs", 0, (0,))
    made.apply_event(30.0, Reported(JobId("runs"), 1, report(1, 0.0)))
    configs = valid_configs(CLUSTER)
    pooled = made.knowledge.pooled
    assert pooled is not None
    table = made.view(0.0).table
    goodput = pooled.goodputs(table, configs)
    alone_s = float(pooled.work(table)[0] / goodput[0, 0])  # it asks for one GPU
    left = pooled.work(table) / goodput.max(axis=1)

    now = finish_time_fairness(made.view(0.0), configs, goodput, left)
    later = finish_time_fairness(made.view(0.25 * alone_s), configs, goodput, left)

    assert now == pytest.approx([1.0, 1.0])
    assert later == pytest.approx([1.25, 1.25])


def worth_of(weights: tuple[float, float]) -> Worth:
    ones = np.ones((2, 2))
    return Worth(ones, ones, np.array(weights), ones, 60.0 * ones, 60.0 * ones)


@pytest.mark.parametrize(("weights", "hurried"), [((1.0, 9.0), {"a"}), ((9.0, 1.0), set())])
def test_a_move_that_others_wait_for_is_a_restart_if_they_weigh_more(
    weights: tuple[float, float], hurried: set[str]
) -> None:
    made = scheduler(job("a"), job("b"))
    run(made, "a", 0, (0, 1))
    first, second = (node.id for node in CLUSTER.nodes)
    changes = {0: Allocation((Slice(second, (0, 1)),)), 1: Allocation((Slice(first, (0, 1)),))}

    moved = find_hurried(
        made.view(10.0), changes, np.array([0.0, -1.0]), np.array([1, 0]), worth_of(weights)
    )

    assert moved == hurried


@pytest.mark.parametrize("restarts", [frozenset(), frozenset({JobId("a")})])
def test_a_plan_may_ask_for_a_restart_where_a_job_could_change_live(
    restarts: frozenset[JobId],
) -> None:
    made = scheduler(job("a"))
    run(made, "a", 0, (0, 1))
    made.apply_event(5.0, Resizable(JobId("a"), 1, 1.0))
    to = Allocation((Slice(CLUSTER.nodes[1].id, (0, 1)),))
    decisions: list[Decided] = []
    made._journal = lambda _, event: decisions.append(event) if isinstance(event, Decided) else None

    made.adopt(10.0, Plan({JobId("a"): to}, restarts=restarts))

    assert (JobId("a") in decisions[-1].live) is not bool(restarts)


def test_parameters_of_old_logs_and_files_are_read() -> None:
    old = "weft:large=9,rise=8,loss=7,half_life=6,wake=5"
    new = "weft:large_s=9,rise_s=8,loss_s=7,half_life_s=6,wake_s=5"
    logged = PartSpec("weft", {"wake": 5.0, "large": 9.0})

    assert build("policy", old) == build("policy", new)
    assert build("policy", logged) == build("policy", "weft:wake_s=5,large_s=9")


@pytest.mark.parametrize("wrong", ["shape=1", "wake_s=0", "rise_s=-1", "wake=0"])
def test_weft_refuses_parameters_that_mean_nothing(wrong: str) -> None:
    with pytest.raises(InvalidConfig, match=wrong.partition("=")[0]):
        weft.simulate("tiny-20", f"weft:{wrong}")


def test_times_of_less_than_a_second_are_taken() -> None:
    assert Weft(wake_s=0.5, rise_s=0.5, loss_s=0.5, half_life_s=0.5).wake_s == 0.5


@pytest.mark.slow
def test_it_ends_a_workload_of_adaptive_jobs_sooner_than_sia_with_fewer_restarts() -> None:
    models = ("cifar10", "ncf", "yolov3", "cifar10", "deepspeech2")
    jobs = [replace(job(f"j{i}", models[i % 5], most=16), submitted=100.0 * i) for i in range(30)]
    trace = Trace("mixed", tuple((job, Truth(1800.0)) for job in jobs))

    result = weft.compare(trace, ["weft", "sia"], "2x4:t4+1x8:a100", processes=1)
    ours, theirs = (result.outcomes[name][0].metrics for name in ("weft", "sia"))

    assert ours["avg_jct_h"] < theirs["avg_jct_h"]
    assert ours["restarts_per_job"] < theirs["restarts_per_job"]


def test_a_job_with_hours_left_is_resized_at_its_own_price_of_restarts() -> None:
    grown = {}
    for price in (1.0, 1e4):
        made = scheduler(job("a"), policy=Weft(large_restart=price))
        run(made, "a", 0, (0,))
        made.apply_event(30.0, Reported(JobId("a"), 1, report(1, 0.0)))
        made.apply_event(300.0, Reported(JobId("a"), 1, report(1, 0.02)))
        grown[price] = bool(made.propose(301.0).changes)

    assert grown == {1.0: True, 1e4: False}


def test_a_part_of_a_gpu_that_is_free_is_used_beside_elastic_jobs() -> None:
    halves = [Job(JobId(f"h{i}"), demand=Demand(1, share=0.5)) for i in range(18)]
    made = scheduler(*halves, job("elastic"))
    made.adopt(0.0, made.propose(0.0))
    made.step(60.0, [Cancelled(JobId("h0"))])
    made.adopt(61.0, made.propose(61.0))

    held = made.view(61.0).held()
    waiting = sum(JobId(f"h{i}") not in held for i in range(1, 18))
    with_room = made.state.free.with_room("v100", 0.5)

    assert waiting
    assert with_room == []


def test_only_where_jobs_share_it_says_so() -> None:
    shared = {
        option: Weft(**{option: True}).about.taxonomy.sharing for option in ("share", "strangers")
    }
    assert set(shared.values()) == {DeviceSharing.SIDE_BY_SIDE}
    assert Weft().about.taxonomy.sharing is DeviceSharing.EXCLUSIVE


def test_a_job_nobody_knows_is_thought_to_grow_by_whole_replicas_up_to_what_it_asks() -> None:
    view = view_of(8, ("a", 4, 100.0))
    sizes = np.array([1.0, 2.0, 3.0, 4.0, 8.0])
    alone, two_each = np.full((1, 5), 10.0), np.full((1, 5), 2.0)

    speeds = expected_speeds(view, alone, two_each, sizes, shape=0.5)

    # Replicas of two GPUs: one GPU and three hold no whole number of them, eight are too many.
    assert speeds.tolist() == [[0.0, 10.0, 0.0, pytest.approx(10.0 * 2**0.5), 0.0]]


def test_a_kind_that_cannot_hold_a_job_is_worth_nothing_to_it() -> None:
    view = view_of(8, ("a", 4, 100.0))
    sizes, none = np.array([1.0, 2.0]), np.zeros((1, 2))

    assert not expected_speeds(view, np.full((1, 2), 10.0), none, sizes, shape=0.5).any()


def test_weight_for_late_jobs_lowers_the_worst_finish_time_fairness() -> None:
    models = ("cifar10", "ncf", "yolov3", "cifar10", "deepspeech2")
    jobs = [replace(job(f"j{i}", models[i % 5], most=16), submitted=30.0 * i) for i in range(40)]
    lengths = [3600.0 if job.model == "yolov3" else 600.0 for job in jobs]
    trace = Trace("crowd", tuple(zip(jobs, map(Truth, lengths), strict=True)))

    result = weft.compare(trace, ["weft", "weft:fair=0"], "1x4:t4+1x4:a100", processes=1)

    worst = {name: runs[0].metrics["worst_ftf"] for name, runs in result.outcomes.items()}
    assert worst["weft"] < 0.7 * worst["weft:fair=0"]
