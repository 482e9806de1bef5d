"""Trees over the last ends: what they learn, and that they know nothing of later ones."""

from __future__ import annotations

import json
import pickle
from math import log1p

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.job_end import Ended, EndKind
from weft.core.model.job import Demand, Job, JobId
from weft.core.state.table import JobTable
from weft.predict.learned.predictor import (
    FEWEST,
    ITERATIONS,
    LEAVES,
    RATE,
    Forest,
    Learned,
    fit,
    spread_over_ages,
)

HOUR_S = 3_600.0


def job(number: int, user: str, gpus: int = 1) -> Job:
    return Job(JobId(f"j{number}"), 60.0 * number, demand=Demand(gpus), user=user)


def end(job: Job, ran: float, at: float) -> Ended:
    return Ended(job, ran, ran * job.demand.gpus, finished=True, how=EndKind.COMPLETED, at=at)


def table_of(*jobs: Job) -> JobTable:
    table = JobTable()
    for seq, entry in enumerate(jobs):
        table.add(entry, seq)
    return table


@pytest.fixture(scope="module")
def taught() -> Learned:
    """Ann's jobs take about 100 s, Bob's about an hour; each is submitted before it ends."""
    predictor, rng = Learned(), np.random.default_rng(0)
    for i in range(FEWEST + 10):
        drawn = job(i, "ann" if rng.random() < 0.5 else "bob")
        predictor.note_submitted(drawn, drawn.submitted)
        typical_s = 100.0 if drawn.user == "ann" else HOUR_S
        ran = typical_s * float(rng.lognormal(0.0, 0.3))
        predictor.learn(end(drawn, ran, drawn.submitted + ran))
    return predictor


def test_exported_trees_say_what_the_library_says() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng = np.random.default_rng(1)
    rows = [
        ((float(rng.integers(8)), float("nan") if rng.random() < 0.3 else float(rng.random())),
         float(rng.lognormal(6.0, 2.0)))
        for _ in range(300)
    ]  # fmt: skip
    x, y = spread_over_ages(rows)
    middle = HistGradientBoostingRegressor(
        loss="quantile", quantile=0.5, max_iter=ITERATIONS, learning_rate=RATE,
        max_leaf_nodes=LEAVES, early_stopping=False, random_state=0,
    ).fit(x, y)  # fmt: skip

    forest = Forest.load(json.loads(json.dumps(fit(rows, len(rows)))))

    predicted = forest.bases[1] + sum(tree.follow(x) for tree in forest.trees[1])
    assert predicted == pytest.approx(middle.predict(x), rel=1e-9)


def test_it_learns_whose_jobs_are_short(taught: Learned) -> None:
    left = taught.quantiles(table_of(job(900, "ann"), job(901, "bob")), 0.0, (0.5,))[:, 0]

    assert 60.0 < left[0] < 200.0
    assert 2_000.0 < left[1] < 6_000.0


def test_quantiles_are_in_order(taught: Learned) -> None:
    left = taught.quantiles(table_of(job(900, "ann")), 0.0, (0.02, 0.1, 0.5, 0.9, 0.98))[0]

    assert (np.diff(left) > 0.0).all()


def test_a_row_knows_no_end_that_came_after_the_submission() -> None:
    predictor = Learned()
    first, second = job(0, "ann"), job(1, "ann")
    for submitted in (first, second):
        predictor.note_submitted(submitted, submitted.submitted)
    before = predictor._open[second.id]

    predictor.learn(end(first, 500.0, 700.0))

    assert predictor._open[second.id] is before
    assert all(np.isnan(value) for value in before[4:])
    assert before[3] == pytest.approx(log1p(60.0))


def test_one_that_has_run_for_long_is_expected_to_go_on(taught: Learned) -> None:
    fresh, old = table_of(job(900, "ann")), table_of(job(900, "ann"))
    old.meters_on(0, 0.0, 1.0)

    at_first = taught.quantiles(fresh, 0.0, (0.5,))[0, 0]
    later = taught.quantiles(old, 20_000.0, (0.5,))[0, 0]

    assert later > 10.0 * at_first


def test_it_comes_back_as_it_was(taught: Learned) -> None:
    again, rows = Learned(), table_of(job(900, "ann"), job(901, "bob"), job(902, "eve", 8))
    again.load(json.loads(json.dumps(taught.save(), allow_nan=False)))

    for other in (again, pickle.loads(pickle.dumps(taught))):
        assert other.quantiles(rows, 0.0).tolist() == taught.quantiles(rows, 0.0).tolist()
        assert other.mean(rows, 0.0).tolist() == taught.mean(rows, 0.0).tolist()


def test_a_service_has_the_model_made_elsewhere() -> None:
    predictor, rows = Learned(), table_of(job(900, "ann"))
    predictor.aside = True
    for i in range(FEWEST):
        drawn = job(i, "ann")
        predictor.note_submitted(drawn, drawn.submitted)
        predictor.learn(end(drawn, 100.0 + i, drawn.submitted + 100.0))
    alone = predictor.quantiles(rows, 0.0).tolist()
    wanted = predictor.wanted()
    assert wanted is not None
    assert wanted.ends == FEWEST

    predictor.adopt(wanted.make())

    assert predictor.wanted() is None
    assert predictor.quantiles(rows, 0.0).tolist() != alone


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="trust"):
        Learned(trust=-1.0)
