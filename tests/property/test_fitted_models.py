"""Models of QSSF and Lucid: what they learn, when they are fitted, that they come back alike."""

from __future__ import annotations

import json
import pickle
from math import inf

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.job_end import Ended, EndKind
from weft.core.model.job import Demand, Job, JobId
from weft.core.state.table import JobTable
from weft.predict.past_ends import DAY_S, FEWEST, PastEnds, encode_rows
from weft_papers.lucid.predictor import NEGATIVE_S, LucidPredictor
from weft_papers.pai.group import PaiGroup
from weft_papers.qssf.boosted import fit_shapes, fit_trees
from weft_papers.qssf.predictor import QssfPredictor, merge

Kind = QssfPredictor | LucidPredictor | PaiGroup


def job(number: int, user: str, gpus: int = 1) -> Job:
    return Job(JobId(f"j{number}"), 60.0 * (number // 2), demand=Demand(gpus), user=user)


def end(job: Job, ran: float, at: float = 0.0) -> Ended:
    return Ended(job, ran, ran * job.demand.gpus, finished=True, how=EndKind.COMPLETED, at=at)


def teach(predictor: Kind, count: int, at: float = 0.0) -> None:
    """Ann's jobs take 100 s, Bob's an hour."""
    for i, ann in enumerate((np.random.default_rng(0).random(count) < 0.5).tolist()):
        user, seconds = ("ann", 100.0) if ann else ("bob", 3_600.0)
        predictor.learn(end(job(i, user), seconds, at))


@pytest.mark.parametrize("kind", [QssfPredictor, LucidPredictor])
def test_the_model_learns_whose_jobs_are_short(kind: type[QssfPredictor | LucidPredictor]) -> None:
    predictor = kind()
    teach(predictor, FEWEST)

    assert predictor.estimate(job(50, "ann")) < 600.0
    assert 3_000.0 < predictor.estimate(job(50, "bob")) < 4_200.0


def test_before_the_first_hundred_ends_there_is_no_model() -> None:
    qssf, lucid = QssfPredictor(), LucidPredictor()
    teach(qssf, FEWEST - 1)
    teach(lucid, FEWEST - 1)

    assert qssf.estimate(job(50, "ann")) == qssf.rolling(job(50, "ann"))
    assert lucid.estimate(job(50, "ann")) == inf


def test_qssf_is_a_tenth_rolling_and_nine_tenths_model() -> None:
    qssf = QssfPredictor()
    teach(qssf, FEWEST)
    assert qssf._model is not None
    encoding, trees = qssf._model
    predicted = trees.predict(encoding.row(("ann", "", ""), 1.0, 60.0 * 25))

    assert qssf.estimate(job(50, "ann")) == pytest.approx(merge(100.0, predicted))
    assert QssfPredictor(model=False).estimate(job(50, "ann")) == inf


@pytest.mark.parametrize(("kind", "days"), [(QssfPredictor, 30.0), (LucidPredictor, 7.0)])
def test_it_is_fitted_again_when_its_time_has_come(
    kind: type[QssfPredictor | LucidPredictor], days: float
) -> None:
    predictor = kind()
    teach(predictor, FEWEST)
    first = predictor._model
    teach(predictor, 2, at=days * DAY_S - 1.0)
    assert predictor._model is first
    teach(predictor, 1, at=days * DAY_S)
    assert predictor._model is not first


@pytest.mark.parametrize("kind", [QssfPredictor, LucidPredictor])
def test_what_was_saved_says_the_same(kind: type[QssfPredictor | LucidPredictor]) -> None:
    predictor, other = kind(), kind()
    teach(predictor, FEWEST + 7)
    other.load(json.loads(json.dumps(predictor.save())))

    asked = [
        job(900 + i, user, gpus) for i, user in enumerate(("ann", "bob", "eve")) for gpus in (1, 8)
    ]
    assert [other.estimate(unseen) for unseen in asked] == [
        predictor.estimate(unseen) for unseen in asked
    ]


@pytest.mark.parametrize("kind", [QssfPredictor, LucidPredictor, PaiGroup])
def test_fitted_aside_it_says_the_same_once_the_model_is_there(kind: type[Kind]) -> None:
    at_once, aside = kind(), kind()
    aside.aside = True
    asked = [job(900, "ann"), job(901, "bob", 8)]
    teach(aside, FEWEST)
    before = [aside.estimate(unseen) for unseen in asked]
    fit = aside.wanted()
    assert fit is not None
    model = json.loads(json.dumps(pickle.loads(pickle.dumps(fit)).make()))
    assert [aside.estimate(unseen) for unseen in asked] == before

    teach(at_once, fit.ends)
    aside = kind()
    aside.aside = True
    teach(aside, fit.ends)
    aside.adopt(model)

    assert aside.wanted() is None
    assert [aside.estimate(unseen) for unseen in asked] == [
        at_once.estimate(unseen) for unseen in asked
    ]


@pytest.mark.parametrize("kind", [QssfPredictor, LucidPredictor, PaiGroup])
def test_what_was_due_when_it_was_saved_is_due(kind: type[Kind]) -> None:
    predictor, other = kind(), kind()
    predictor.aside = other.aside = True
    teach(predictor, FEWEST)
    other.load(json.loads(json.dumps(predictor.save())))

    was, wanted = predictor.wanted(), other.wanted()
    assert was is not None
    assert wanted is not None
    assert wanted.make() == was.make()


def test_a_model_that_is_late_leaves_the_next_one_due() -> None:
    predictor = LucidPredictor()
    predictor.aside = True
    teach(predictor, FEWEST)
    fit = predictor.wanted()
    assert fit is not None
    teach(predictor, 1, at=8 * DAY_S)
    predictor.adopt(fit.make())

    wanted = predictor.wanted()
    assert wanted is not None
    assert wanted.ends > fit.ends


@pytest.mark.parametrize("kind", [QssfPredictor, LucidPredictor])
def test_an_estimate_stays_whoever_asks_and_when(
    kind: type[QssfPredictor | LucidPredictor],
) -> None:
    asked, other = kind(), kind()
    table = JobTable(1)
    table.add(job(900, "ann"), 0)
    for predictor in (asked, other):
        teach(predictor, FEWEST)
        predictor.note_submitted(table.jobs[0], 0.0)
    predicted = asked.remaining(table, 0.0)
    for predictor in (asked, other):
        teach(predictor, FEWEST, at=40 * DAY_S)
        again = kind()
        again.load(json.loads(json.dumps(predictor.save())))

        assert predictor.remaining(table, 0.0) == predicted
        assert again.remaining(table, 0.0) == predicted


def test_lucid_takes_a_negative_prediction_for_a_thousand_seconds() -> None:
    lucid = LucidPredictor()
    teach(lucid, FEWEST)
    assert lucid._model is not None
    encoding, shapes = lucid._model
    lucid._model = encoding, shapes._replace(mean=-1e9)

    assert lucid.estimate(job(50, "ann")) == NEGATIVE_S


def test_shapes_and_trees_find_what_depends_on_two_features_together() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (600, 4)).astype(float)
    y = 100.0 * (x[:, 1] != x[:, 2])

    for model in (fit_shapes(x, y), fit_trees(x, y + x[:, 1])):
        assert model.predict(np.array([0.0, 0.0, 1.0, 0.0])) > 90.0
        assert model.predict(np.array([0.0, 1.0, 1.0, 0.0])) < 10.0


def test_rows_know_nothing_of_their_own_end_or_later_ones() -> None:
    past = PastEnds(7.0)
    for i in range(FEWEST):
        past.add(job(i, "only" if i == 3 else "many"), 1_000.0 if i == 3 else 10.0, 0.0)
    encoding, x, _ = encode_rows(past.rows())

    assert x[3, 0] == pytest.approx(10.0)
    assert x[5, 0] == pytest.approx((4 * 10.0 + (4 * 10.0 + 1_000.0) / 5) / 5)
    overall = (99 * 10.0 + 1_000.0) / 100
    assert encoding.row(("only", "", ""), 1.0, 0.0)[0] == pytest.approx((1_000.0 + overall) / 2)


@pytest.mark.parametrize("kind", [QssfPredictor, LucidPredictor])
def test_days_are_above_nothing(kind: type[QssfPredictor | LucidPredictor]) -> None:
    with pytest.raises(InvalidConfig, match="refresh_days"):
        kind(refresh_days=0.0)
