"""Explanations, plans and estimates as functions of a state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

from weft.app.insight.counted_start import MANY, count_start
from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.explain import PROBES, Advice, cheapest_change, explain, in_front, plan
from weft.app.insight.present import Estimate, Present
from weft.app.serve.predicting import HintedOrAlike
from weft.core.events.actions import Start
from weft.core.events.event import Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Demand, Job, JobId, NodeId
from weft.core.model.launch import Launch
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker, Reason
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.core.state.table import JobTable
from weft.policies.fifo import Fifo
from weft.predict.hinted import Hinted
from weft.stack.windows import read_window
from weft.testing.build import cluster_of

NOW = 1_000_000.0


def job(name: str, gpus: int, length: float = 600.0, kinds: tuple[str, ...] = ()) -> Job:
    demand = Demand(gpus, kinds=kinds)
    return Job(JobId(name), NOW, demand, hints={"duration_s": length})


def live(policy: str, cluster: str, *jobs: Job) -> Present:
    """Jobs submitted one after the other, a second apart, starting at once where they can."""
    scheduler = Scheduler(
        build("policy", policy), parse_cluster(cluster), knowledge=Knowledge(Hinted())
    )
    for i, job in enumerate(jobs):
        actions = scheduler.step(NOW + i, [Submitted(job)])
        starts = [a for a in actions if isinstance(a, Start)]
        scheduler.step(NOW + i, [Started(a.job.id, a.attempt) for a in starts])
    return Present.of(scheduler, NOW + len(jobs))


def test_a_waiting_job_is_told_numbers_who_is_in_front_and_when() -> None:
    present = live("fifo", "1x4:a100", job("runs", 4), job("ahead", 2), job("mine", 2))

    why = explain(present, JobId("mine"))

    assert why.reason == "waits for 2 GPUs; none is free: runs (4) holds them"
    assert why.numbers["ahead_waiting"] == 1
    assert why.numbers["ahead_gpus"] == 2.0
    assert [(entry.job.id, entry.gpus, entry.running) for entry in why.ahead] == [
        ("ahead", 2.0, False),
        ("runs", 4.0, True),
    ]
    assert why.numbers["held_by_running"] == 4.0
    assert why.start is not None
    middle = why.start.quantile(0.5)
    assert middle is not None
    assert 200.0 < middle < 1500.0  # "runs" has about 600 s to go, and "ahead" fits beside


def test_what_others_hold_is_not_free() -> None:
    """`explain` said that 4 GPUs are free while jobs outside Weft held two of them."""
    scheduler = Scheduler(build("policy", "fifo"), Cluster(()))
    scheduler.step(NOW, [Submitted(replace(job("mine", 4), tenant="vision"))])
    kept = [read_window("taken", "~n1:2,3"), read_window("pool", "n2=nlp")]
    present = replace(Present.of(scheduler, NOW, kept), cluster=named_cluster("n1", "n2"))

    numbers = explain(present, JobId("mine")).numbers

    assert numbers["free_by_kind"] == {"a100": 2}
    assert numbers["largest_free_block"] == {"a100": 2}


def named_cluster(*names: str) -> Cluster:
    return Cluster(tuple(Node(NodeId(name), "a100", 4) for name in names))


def test_the_reason_of_the_decision_comes_first() -> None:
    present = live("fifo", "1x4:a100", job("runs", 4), job("mine", 2))

    reason = Reason(Blocker.SAID, {"text": "over quota: because"})
    assert explain(present, JobId("mine"), reason).reason == "over quota: because"


def test_a_running_job_is_told_what_it_holds() -> None:
    present = live("fifo", "1x4:a100", job("runs", 3))

    why = explain(present, JobId("runs"))

    assert why.reason == "holds 3 a100 GPUs"
    assert why.numbers["gpu_seconds"] == pytest.approx(3.0, abs=3.1)
    assert why.start is None


def test_who_is_in_front_is_the_policys_order_not_that_of_submission() -> None:
    jobs = (job("runs", 4, 50.0), job("long", 4, 9000.0), job("mine", 4, 600.0))
    short = job("short", 4, 100.0)
    present = live("srtf", "1x4:a100", *jobs, short)

    waiting = [entry.job.id for entry in in_front(present, present.table.row(JobId("mine")))]

    assert waiting[0] == "short"
    assert "long" not in waiting


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (job("mine", 3, kinds=("a100",)), {"kinds": []}),
        (job("mine", 4), {"gpus": 3}),
        (job("mine", 7, kinds=("t4",)), {"gpus": 3}),
    ],
)
def test_the_advised_change_starts_the_job(asked: Job, fields: dict[str, object]) -> None:
    present = live("fifo:backfill=true", "1x4:a100+1x8:t4", job("x", 4, kinds=("a100",)),
                   job("y", 5, kinds=("t4",)), asked)  # fmt: skip
    assert not present.decide().changes

    advice = cheapest_change(present, asked)

    assert advice is not None
    assert advice.fields == fields
    assert present.with_job(advice.job).decide().changes[asked.id] is not None


def test_where_nothing_helps_nothing_is_advised() -> None:
    present = live("fifo", "1x1:a100", job("runs", 1), job("mine", 1))

    assert cheapest_change(present, present.table.jobs[1]) is None


def test_a_plan_names_who_would_be_displaced() -> None:
    present = live("srtf", "1x4:a100", job("long", 4, 9000.0))

    trial = plan(present, job("short", 2, 60.0))

    assert trial.allocation is not None
    assert [displace.id for displace in trial.displaces] == ["long"]


def test_a_plan_for_a_job_that_must_wait_has_an_estimate() -> None:
    present = live("fifo", "1x4:a100", job("runs", 4, 1000.0))

    trial = plan(present, job("next", 4))

    assert trial.allocation is None
    assert trial.reason == "waits for 4 GPUs; none is free: runs (4) holds them"
    assert trial.start is not None
    assert all(after is not None and after > 0.0 for after in trial.start.after)


def test_looking_changes_nothing() -> None:
    scheduler = Scheduler(build("policy", "las"), cluster_of(4), knowledge=Knowledge(Hinted()))
    scheduler.step(NOW, [Submitted(job("a", 3)), Submitted(job("b", 3))])
    before = (
        scheduler.state.free.idle(),
        scheduler.state.decisions,
        list(scheduler.state.table.jobs),
    )

    explain(Present.of(scheduler, NOW + 5.0), JobId("b"))

    assert before == (
        scheduler.state.free.idle(),
        scheduler.state.decisions,
        list(scheduler.state.table.jobs),
    )


def test_estimates_cover_what_happens() -> None:
    """The truth is one more draw of the same kind: 80 % of them lie between p10 and p90."""
    jobs = [job(f"r{i}", 1, 300.0 + 100.0 * i) for i in range(8)]
    jobs += [job(f"w{i}", 2, 500.0) for i in range(4)]
    present = live("fifo", "1x8:a100", *jobs, job("mine", 4))
    estimate = present.estimate(JobId("mine"), simulations=40, decisions=40_000)
    low, high = estimate.quantile(0.1), estimate.quantile(0.9)
    assert low is not None
    assert high is not None

    more = [present._fork(1000 + seed).until_started(JobId("mine"), 1000) for seed in range(40)]

    inside = [at for at in more if at is not None and low <= at - present.now <= high]
    assert 24 <= len(inside) <= 40


def test_quantiles_know_what_was_not_reached() -> None:
    estimate = Estimate((1.0, 2.0, None, 3.0))

    assert estimate.quantile(0.5) == 3.0
    assert estimate.quantile(0.9) is None


def test_a_job_that_cannot_start_within_the_budget_has_no_estimate() -> None:
    present = live("fifo", "1x4:a100", job("runs", 4), *(job(f"j{i}", 4) for i in range(30)))

    estimate = present.estimate(JobId("j29"), simulations=3, decisions=15)

    assert estimate.after == (None, None, None)


def test_a_job_that_its_owner_cannot_help_is_told_what_others_could_do() -> None:
    present = live("fifo", "1x2:a100", job("runs", 2), job("mine", 1))
    again = Node(NodeId("a100-9"), "a100", 2)
    more = [Advice("use it", {}, job("mine", 1), partial(Present.with_node, node=again))]
    firm = replace(job("mine", 1), shareable=False, priority=1.0)

    alone, helped = cheapest_change(present, firm), cheapest_change(present, firm, more)

    assert alone is None
    assert helped is more[0]


def test_a_plan_says_what_it_starts_on_in_words_that_read_well() -> None:
    cpus = live("fifo", "1x2:cpu")

    assert plan(cpus, job("one", 1)).reason == "starts at once on 1 CPU slot"
    assert plan(live("fifo", "1x2:a100"), job("two", 2)).reason == "starts at once on 2 a100 GPUs"


def test_an_outlook_from_now_tells_when_each_job_starts_and_ends() -> None:
    present = live("fifo", "1x4:a100", job("runs", 4, 1000.0), job("next", 4))

    outlook = present.look_ahead().outlook
    then = present.with_node(Node(NodeId("more"), "a100", 4)).look_ahead().outlook

    start, end = (
        outlook[JobId("next")].start.quantile(0.5),
        outlook[JobId("next")].end.quantile(0.5),
    )
    assert outlook[JobId("runs")].start.quantile(0.5) == 0.0
    assert start is not None
    assert end is not None
    assert 0.0 < start < end
    assert then[JobId("next")].start.quantile(0.5) == 0.0


@dataclass(frozen=True, slots=True)
class Keeper:
    """Starts nobody, as a quota may."""

    about = About("keeper", "nowhere")

    def decide(self, view: View) -> Plan:
        return Plan({})


def test_a_job_that_is_kept_back_beside_free_gpus_is_not_told_that_it_starts_now() -> None:
    present = replace(live("fifo", "1x4:a100", job("runs", 4), job("mine", 1)), policy=Keeper())
    present = present.with_node(Node(NodeId("more"), "a100", 4))

    why = explain(present, JobId("mine"), budget=CpuBudget(0.0))

    assert why.start is not None
    assert why.start.quantile(0.5) is None
    assert not why.start.counted


@dataclass(frozen=True, slots=True)
class Restless:
    """First in, first out, and a look every second whether anything is different."""

    about = About("restless", "nowhere")

    def decide(self, view: View) -> Plan:
        return replace(Fifo().decide(view), wake_at=view.now + 1.0)


def test_looks_at_what_has_not_changed_do_not_keep_an_outlook_from_the_end() -> None:
    present = live("fifo", "1x4:a100", job("runs", 4, 1e6), job("next", 4, 1e6))

    outlook = replace(present, policy=Restless()).look_ahead(simulations=1).outlook

    assert outlook == present.look_ahead(simulations=1).outlook
    assert outlook[JobId("next")].end.quantile(0.5) is not None


def test_a_decision_that_is_not_paid_for_is_not_asked_of_the_policy() -> None:
    class Never:
        about = Fifo().about

        def decide(self, view: View) -> Plan:
            raise AssertionError(view)

    present = live("fifo", "1x4:a100", job("runs", 4), job("ahead", 2), job("mine", 2))
    present = replace(present, policy=Never())

    why = explain(present, JobId("mine"), budget=CpuBudget(60.0, step_s=61.0))

    assert [front.job.id for front in why.ahead] == ["ahead", "runs"]
    assert why.start is not None
    assert why.start.counted
    assert len(why.left_out) == 3


@dataclass(slots=True)
class Asked:
    """First in, first out; keeps of how many jobs it is asked."""

    about = Fifo().about
    jobs: list[int] = field(default_factory=list)

    def decide(self, view: View) -> Plan:
        self.jobs.append(len(view.table))
        return Fifo().decide(view)


@pytest.mark.parametrize(("step_s", "probed"), [(1.0, True), (40.0, False)])
def test_what_an_order_costs_is_not_tried_where_it_cannot_be_paid_for_anyway(
    step_s: float, probed: bool
) -> None:
    """Decisions about fewer jobs tell what one about all of them costs; they cost as well."""
    present, asked = live("fifo", "1x4:a100", job("runs", 4)), Asked()
    for number in range(2 * max(PROBES)):
        present.table.add(job(f"ahead{number}", 2), 1 + number, NOW)
    present = replace(present, policy=asked).with_job(job("mine", 2))

    explain(present, JobId("mine"), budget=CpuBudget(60.0, step_s=step_s))

    assert (set(PROBES) <= set(asked.jobs)) == probed


def test_one_count_is_enough_with_very_many_jobs_ahead() -> None:
    present = live("fifo", "1x4:a100", job("runs", 4))
    for number in range(MANY):
        present.table.add(job(f"ahead{number}", 4), 1 + number, NOW)
    names = [JobId(f"ahead{number}") for number in range(MANY)]

    many = count_start(present, names, CpuBudget(0.0))
    few = count_start(present, names[: MANY - 1], CpuBudget(0.0))

    assert many is not None and few is not None
    assert (len(many.after), len(few.after)) == (1, 2)
    assert many.after[0] == pytest.approx(few.after[-1], rel=0.05)


def test_what_may_be_left_is_drawn_from_a_hint_and_else_from_jobs_alike() -> None:
    table, predictor = JobTable(), HintedOrAlike()
    for number in range(40):
        hints = {"duration_s": 600.0 + number} if number % 2 else {}
        table.add(Job(JobId(f"job{number}"), NOW, Demand(1), hints=hints), number, NOW)

    drawn = predictor.draw(table, NOW, np.random.default_rng(0))

    hinted = Hinted().draw(table, NOW, np.random.default_rng(0))
    assert drawn[1::2].tolist() == hinted[1::2].tolist()
    assert np.isfinite(drawn).all()
    assert len(set(drawn[::2].tolist())) > 5


def test_a_part_of_a_budget_pays_for_a_decision_where_the_whole_does() -> None:
    budget = CpuBudget(60.0, step_s=20.0)

    assert budget.share_of_rest(0.1).cpu_s == pytest.approx(22.0)
    assert not budget.share_of_rest(0.1).empty
    assert CpuBudget(10.0, step_s=20.0).empty


def test_jobs_behind_that_overtake_count_in_when_a_job_starts() -> None:
    """Small jobs that start before a gang keep it waiting, although they came after it."""
    alone = live("fifo:backfill=true", "1x4:a100", job("runs", 3), job("gang", 4))
    small = job("small0", 1), *(job(f"small{i}", 1, 9000.0) for i in range(1, 4))
    crowd = live("fifo:backfill=true", "1x4:a100", job("runs", 3), job("gang", 4), *small)

    first, later = (explain(present, JobId("gang")).start for present in (alone, crowd))

    assert first is not None and later is not None
    sooner, after = first.quantile(0.5), later.quantile(0.5)
    assert sooner is not None and (after is None or after > 1.5 * sooner)


def test_a_start_is_unknown_where_nothing_says_how_long_others_take() -> None:
    silent = Job(JobId("silent"), NOW, Demand(4))
    limited = replace(silent, launch=Launch(("true",), time_limit_s=900.0))
    hinted, late = job("told", 4), job("late", 4)

    starts = [
        explain(live("fifo", "1x4:v100", first, late), late.id).start
        for first in (silent, limited, hinted)
    ]

    assert [start is not None and start.unknown for start in starts] == [
        "nothing says how long another job will take, and too few have ended to go by",
        "",
        "",
    ]
    assert starts[0] is not None and starts[0].quantile(0.5) is None
    assert starts[2] is not None and starts[2].quantile(0.5) is not None
