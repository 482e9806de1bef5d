"""Whatever a job says of itself, nobody who believes it raises, hangs or grows without bound."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.events.report import NAMES, Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import BatchRange, Config, Demand, Job, JobId
from weft.core.state.table import JobTable
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of
from weft.perf.training.learner import Learner
from weft.predict.history import HistoryPredictor

numbers = (
    st.floats()
    | st.floats(0.0, 10.0)
    | st.integers()
    | st.integers(0, 4).map(float)
    | st.sampled_from([0.0, 1.0, 1e-300, 1e15, 1e18, -1.0, float("nan"), float("inf"), 10**400])
)
anything = numbers | st.none() | st.booleans() | st.text(max_size=3) | st.lists(st.integers())
fields = st.dictionaries(
    st.sampled_from(NAMES) | st.text(max_size=5) | st.just("user.own"), anything, max_size=8
)
# Those that laws are fitted to, in numbers that pass: this is where sums and fits may break.
plausible = st.fixed_dictionaries(
    {
        name: st.floats(1e-9, 1e9) | st.sampled_from([1.0, 1e-300, 1e15])
        for name in ("step_s", "grad_s", "per_gpu")
    },
    optional={
        name: st.floats(0.0, 1e15) | st.sampled_from([0.0, 1.0, 1e-300])
        for name in NAMES
        if name not in ("step_s", "grad_s", "per_gpu")
    },
)
JOBS = (
    Job(JobId("plain"), demand=Demand(2, 1, 4)),
    Job(JobId("adaptive"), demand=Demand(2, 1, 4), batch=BatchRange(32, 512, 64)),
    Job(
        JobId("served"),
        demand=Demand(2),
        model="resnet-50",
        hints={"servers": 2.0, "steps": 100.0, "epochs": 10.0},
    ),
)


def knowledge() -> Knowledge:
    return Knowledge(HistoryPredictor(), FittedBeliefs(), Colocated(profile_of), Learner())


def ask(known: Knowledge, table: JobTable) -> None:
    """Every question that a policy may ask."""
    assert known.predictor and known.beliefs and known.colocation and known.training
    configs = [Config("a100", 1, 1), Config("a100", 1, 2), Config("a100", 2, 4)]
    kinds = ["a100"]
    known.predictor.remaining(table, 0.0)
    known.beliefs.goodputs(table, configs)
    known.beliefs.blind_goodputs(table, kinds, np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    known.beliefs.rates(table, kinds)
    known.beliefs.most_run(table)
    known.beliefs.restart_s(table)
    for job in table.jobs:
        known.colocation.pace(job)
        known.colocation.profile(job)
        known.training.learned(job)
        known.training.seconds_left(job)
        known.training.steps_left(job)
        known.training.step_seconds(job, 4, 4)


def read_reports(reports: list[dict[str, Any]]) -> None:
    known, table = knowledge(), JobTable()
    for number, job in enumerate(JOBS):
        table.add(job, number)
    kind = parse_cluster("2x4:a100").kinds[0]
    for i, values in enumerate(reports):
        report, _ = Report.validate(values)
        for job in JOBS:
            known.observe(job, kind, report)
        if i % 2:
            ask(known, table)
    ask(known, table)
    saved = json.loads(json.dumps(known.save()))
    again = knowledge()
    again.load(saved)
    assert json.loads(json.dumps(again.save())) == saved
    ask(again, table)
    assert len(json.dumps(saved)) < 10_000_000
    for job in JOBS:
        known.forget(job)


@given(st.lists(fields, max_size=6))
def test_no_report_breaks_what_is_believed(reports: list[dict[str, Any]]) -> None:
    read_reports(reports)


@settings(deadline=None)
@given(st.lists(plausible, min_size=1, max_size=6))
def test_no_report_of_plausible_numbers_breaks_what_is_believed(
    reports: list[dict[str, Any]],
) -> None:
    read_reports(reports)


@given(fields)
def test_what_is_wrong_is_named_and_the_rest_is_kept(values: dict[str, Any]) -> None:
    report, wrong = Report.validate(values)

    assert len(report.values()) + len(wrong) == len(values)
    assert Report.parse(report.values()) == report
    assert all(len(text) < 300 for text in wrong)
