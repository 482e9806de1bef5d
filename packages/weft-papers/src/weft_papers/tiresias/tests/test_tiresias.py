"""The worked examples of Tiresias (NSDI 2019) and its toy figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.codec.event_lines import read_event
from weft.core.events.event import Decided, Started, Stopped
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.spec.registry import build
from weft.core.state.cells import TableColumns
from weft.pieces.order.attained import best_gittins_index, gittins_index
from weft.sim.result import Outcome
from weft.testing import view_of
from weft_papers.tiresias.policy import Tiresias

Spec = tuple[str, int, float, float]
FIRST: tuple[Spec, ...] = (("A", 4, 0, 100), ("B", 2, 10, 30), ("C", 2, 20, 60))
STARVING: tuple[Spec, ...] = (
    ("L", 2, 0, 60),
    ("S1", 2, 20, 20),
    ("S2", 2, 40, 20),
    ("S3", 2, 60, 20),
    ("S4", 2, 80, 20),
)
TOY: tuple[Spec, ...] = (("J1", 2, 0, 2), ("J2", 1, 0, 8), ("J3", 2, 0, 6))


def play(jobs: tuple[Spec, ...], policy: str, cluster: str) -> Outcome:
    pairs = tuple((Job(JobId(n), s, Demand(g)), Truth(t)) for n, g, s, t in jobs)
    result = weft.simulate(Trace("worked", pairs), policy, cluster, restart_cost=0.0)
    return result.outcomes[policy][0]


def jcts(jobs: tuple[Spec, ...], policy: str, cluster: str) -> list[float]:
    outcome = play(jobs, policy, cluster)
    return [round(float(t), 6) for t in outcome.per_job.jct_s]


@pytest.mark.parametrize("rule", ["sticky", "start"])
def test_discretised_two_dimensional_las_runs_the_worked_example(rule: str) -> None:
    policy = f"tiresias:thresholds=100,rule={rule}"

    outcome = play(FIRST, policy, "1x4:v100")

    assert outcome.per_job.jct_s.tolist() == pytest.approx([150, 45, 140])
    assert outcome.per_job.restarts.tolist() == [1, 0, 1]


def test_who_runs_when_in_the_worked_example() -> None:
    outcome = play(FIRST, "tiresias:thresholds=100", "1x4:v100")

    held = {(b.job, b.start_s, b.end_s) for b in outcome.timeline}

    assert held == {("A", 0, 25), ("B", 25, 55), ("C", 25, 75), ("A", 75, 150), ("C", 150, 160)}


def test_strict_fifo_and_srtf_on_the_same_jobs() -> None:
    assert jcts(FIRST, "fifo", "1x4:v100") == [100, 120, 140]
    assert jcts(FIRST, "srtf", "1x4:v100") == [170, 30, 60]


def test_fifo_serves_jobs_that_exclude_each_other_in_the_order_they_came() -> None:
    assert jcts(STARVING, "fifo", "1x2:v100") == [60, 60, 60, 60, 60]


@pytest.mark.parametrize(
    ("knob", "expected"),
    [("none", [140, 20, 20, 20, 20]), ("1", [100, 20, 40, 60, 60]), ("2", [140, 20, 20, 40, 40])],
)
def test_the_starvation_knob_promotes_the_long_job(knob: str, expected: list[float]) -> None:
    policy = f"tiresias:thresholds=40,rule=start,knob={knob}"

    assert jcts(STARVING, policy, "1x2:v100") == expected


def test_srsf_on_the_published_toy() -> None:
    assert jcts(TOY, "srsf", "1x2:v100") == [2, 10, 16]


def test_continuous_two_dimensional_las_on_the_published_toy() -> None:
    assert jcts(TOY, "las:quantum=1", "1x2:v100") == [5, 14, 16]


def test_without_thresholds_in_reach_the_order_is_first_fit_fifo() -> None:
    jobs = tuple((f"j{i}", 1 + i % 4, 7.0 * i, 50.0 + 13 * (i % 5)) for i in range(40))

    assert jcts(jobs, "tiresias:thresholds=1e12", "1x4:v100") == jcts(
        jobs, "fifo:backfill=true", "1x4:v100"
    )


SAMPLES = np.array([100, 100, 100, 200, 400, 800, 1600, 3200], dtype=float)


def test_the_gittins_index_of_the_worked_distribution() -> None:
    attained, quanta = np.array([0.0, 0, 100, 400]), np.array([100.0, 400, 300, 400])

    index = gittins_index(SAMPLES, attained, quanta)

    assert index == pytest.approx([0.00375, 0.00238095, 0.00153846, 0.00083333], rel=1e-5)


def test_the_best_gittins_index_of_the_worked_distribution() -> None:
    assert best_gittins_index(SAMPLES, np.array([0.0, 100.0])) == pytest.approx([0.00375, 0.002])


def test_the_gittins_index_beyond_all_samples_is_zero() -> None:
    assert gittins_index(SAMPLES, np.array([3200.0]), 100.0) == 0.0
    assert best_gittins_index(SAMPLES, np.array([4000.0])) == 0.0


def test_the_optimal_index_looks_beyond_the_next_step() -> None:
    # Seven of eight jobs took 1,000 s and one 50: 0.0025 is the best index of a new one (1 / 8 by
    # 50). With 450 s behind it a job counts as at 400: 1 / 600 is less. At 850 it is 1 / 200.
    past = [(2000.0 * i, 50.0 if i == 0 else 1000.0) for i in range(8)]
    seen = [(20_000.0, 1000.0), (20_450.0, 50.0), (20_900.0, 50.0)]
    jobs = [(Job(JobId(f"j{i}"), at, Demand(1)), Truth(s)) for i, (at, s) in enumerate(past + seen)]
    policy = "gittins:optimal=true,quantum=100,min_samples=8"

    run = weft.simulate(Trace("index", tuple(jobs)), policy, "1x1:v100", restart_cost=0.0)

    jct_s = run.outcomes[policy][0].per_job.jct_s
    assert jct_s[8:] == pytest.approx([1050.0, 50.0, 200.0])


def test_a_skewed_model_waits_for_one_node_and_others_fill_the_gaps() -> None:
    def gang(model: str) -> Trace:
        pairs = [
            (Job(JobId("a"), 0.0, Demand(3)), Truth(100.0)),
            (Job(JobId("b"), 0.0, Demand(3)), Truth(300.0)),
            (Job(JobId("gang"), 1.0, Demand(2), model=model), Truth(10.0)),
        ]
        return Trace("skew", tuple(pairs))

    start = {
        model: weft.simulate(gang(model), "tiresias", "2x4:v100").outcomes["tiresias"][0]
        for model in ("vgg16", "resnet50")
    }

    assert start["vgg16"].per_job.start_s[2] == 100.0
    assert start["resnet50"].per_job.start_s[2] == 1.0


def test_only_without_promotions_nothing_changes_while_everybody_runs() -> None:
    assert Tiresias().rests
    assert not Tiresias(knob=2.0).rests
    assert Tiresias().pack_limit == 0.25  # as published


def test_no_service_is_lost_or_counted_twice_over_preemptions() -> None:
    outcome = play(FIRST, "tiresias:thresholds=100", "1x4:v100")

    assert outcome.per_job.gpu_s.tolist() == pytest.approx([400, 60, 120])


def test_stops_come_before_the_starts_that_need_their_devices(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    pairs = tuple((Job(JobId(n), s, Demand(g)), Truth(t)) for n, g, s, t in FIRST)

    weft.simulate(
        Trace("worked", pairs), "tiresias:thresholds=100", "1x4:v100", checkpoint_s=5.0, events=log
    )

    events = [read_event(line) for line in log.read_text().splitlines()]
    stopped = next(at for at, e in events if isinstance(e, Stopped))
    decided = next(at for at, e in events if isinstance(e, Decided) and len(e.changes) == 3)
    started = min(at for at, e in events if isinstance(e, Started) and e.job == "B")
    assert decided == 25.0
    assert stopped == started == 30.0


@pytest.mark.parametrize(
    ("policy", "served", "runs"),
    [
        ("tiresias:priority=gittins", 11.0, "new"),
        ("tiresias:priority=gittins", 9.0, "old"),
        ("tiresias", 11.0, "old"),
    ],
)
def test_tiresias_runs_the_job_with_the_higher_index(policy: str, served: float, runs: str) -> None:
    # Of those who ended, half took 10 GPU-seconds and half 1,000. Who has had 11 is one of the long
    # ones; who has had 9 may be about to end. By service alone both are in the first queue.
    view = view_of(1, Job(JobId("old"), 0.0), Job(JobId("new"), 50.0), now=60.0)
    view.table.set(0, TableColumns.SERVICE_BASE, served)
    past = np.array([10.0] * 64 + [1000.0] * 64)

    plan = build("policy", policy).decide(replace(view, history=past))

    assert set(view.after(plan)) == {runs}


@pytest.mark.parametrize(
    ("policy", "expected"), [("sjf", [100.0, 155.0, 100.0]), ("srtf", [160.0, 60.0, 10.0])]
)
def test_sjf_starts_the_shortest_first_and_stops_nobody_for_it(
    policy: str, expected: list[float]
) -> None:
    jobs: tuple[Spec, ...] = (("long", 4, 0, 100), ("middle", 4, 5, 50), ("short", 4, 10, 10))

    assert jcts(jobs, policy, "1x4:v100") == expected
