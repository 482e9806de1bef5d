"""Predictors are compared in time order, on what had ended by then."""

from __future__ import annotations

import numpy as np
import pytest

from weft.app.evaluate import NodePool, evaluate, learn_trace, replay
from weft.core.events.job_end import Ended
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Truth
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.predict.alike.predictor import Alike


def row(name: str, at: float, gpus: int, length: float) -> tuple[Job, Truth]:
    return Job(JobId(name), at, Demand(gpus), user=name[0]), Truth(length)


class Diary(PointPredictor, NothingLearnt):
    """Writes down what it is told, and predicts by name."""

    label = "diary"
    asks = PredictorNeeds()

    def __init__(self, lengths: dict[str, float]) -> None:
        self.said, self.heard = lengths, list[tuple[str, float]]()

    def remaining(self, table: JobTable, now: float) -> Floats:
        return np.array([self.said[job.id] for job in table.jobs])

    def learn(self, ended: Ended) -> None:
        self.heard.append((ended.job.id, ended.at))


def test_the_shortest_predicted_service_goes_first_and_the_first_misfit_holds_up_the_rest() -> None:
    jobs = [row("a", 0, 8, 100), row("b", 1, 8, 50), row("c", 2, 1, 50), row("d", 3, 1, 5)]
    diary = Diary({"a": 1.0, "b": 2.0, "c": 99.0, "d": 50.0})

    done = replay(jobs, diary, nodes=1, per_node=8)

    assert done.wait_s.tolist() == [0.0, 99.0, 148.0, 147.0]  # b before d and c
    assert diary.heard == [("a", 100.0), ("b", 150.0), ("d", 155.0), ("c", 200.0)]


def test_of_many_alike_that_wait_one_is_tried_before_others_that_look_shorter() -> None:
    # One of ten large jobs took a day: by the mean none of these forty goes before the small ones.
    past = [row(f"l{i}", 1e5 * i, 8, 86_400.0 if i % 10 == 0 else 5.0) for i in range(60)]
    past += [row(f"s{i}", 1e5 * i, 1, 20_000.0) for i in range(60)]
    jobs = [row("l", 0, 8, 100.0)]
    jobs += [row(f"l{i}", 1, 8, 5.0) for i in range(40)]
    jobs += [row(f"s{i}", 2, 1, 20_000.0) for i in range(16)]

    def wait_s(predictor: Alike) -> float:
        learn_trace(predictor, past, until=1e9)
        return float(replay(jobs, predictor, nodes=1, per_node=8).wait_s[20])

    assert wait_s(Alike()) > 40_000.0
    assert wait_s(Alike(point="first")) < 400.0


def test_large_jobs_take_whole_empty_nodes_and_small_ones_the_fullest() -> None:
    pool = NodePool(3, 8)

    assert pool.take(6) == [(0, 6)]
    assert pool.take(2) == [(0, 2)]
    assert pool.take(12) == [(1, 8), (2, 4)]
    assert pool.take(8) is None
    pool.give([(1, 8), (2, 4)])
    assert pool.take(16) == [(1, 8), (2, 8)]


def test_an_evaluation_has_bounds_predictors_and_the_truth() -> None:
    rng = np.random.default_rng(0)
    jobs = [
        row(f"{'ab'[i % 2]}{i}", 30.0 * i, 1 + i % 4, (60.0, 600.0)[i % 2] * rng.lognormal(0, 0.1))
        for i in range(300)
    ]

    done = evaluate(jobs, ("alike", "last"))
    by_name = {row.name: row for row in done.rows}

    assert done.rows[-1].name == "oracle"
    assert by_name["oracle"].jct_s <= by_name["fifo"].jct_s
    assert by_name["alike"].jct_s <= by_name["fifo"].jct_s
    assert by_name["alike"].error_p50 < 0.1
    assert by_name["alike"].within_2x > 0.85
    assert 0.5 < by_name["alike"].coverage <= 1.0
    assert by_name["alike"].spearman > 0.6
    assert np.isnan(by_name["fifo"].coverage)


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    from weft.cli.commands.simulate.predict import predict

    predict(replay="philly", jobs=120, predictor=["alike"])

    printed = capsys.readouterr().out
    assert "alike" in printed
    assert "oracle" in printed
    assert "24 are learnt from only" in printed
