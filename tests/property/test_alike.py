"""The default predictor: distributions from jobs alike, the same from one row or many."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.job_end import Ended, EndKind
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.core.state.cells import TableColumns
from weft.core.state.table import JobTable
from weft.predict.alike.mixture import mean as mean_of
from weft.predict.alike.mixture import mix, prior, quantile
from weft.predict.alike.predictor import Alike
from weft.predict.traits import levels_of

P = (0.1, 0.5, 0.9)


def job(name: str, gpus: int = 1, tenant: str = "", user: str = "", **more: object) -> Job:
    return Job(JobId(name), demand=Demand(gpus), tenant=tenant, user=user, **more)  # type: ignore[arg-type]


def ended(submitted: Job, ran: float, how: EndKind = EndKind.COMPLETED, at: float = 0.0) -> Ended:
    done = how is EndKind.COMPLETED
    return Ended(submitted, ran, ran * submitted.demand.gpus, finished=done, how=how, at=at)


def table_of(*rows: tuple[Job, float]) -> JobTable:
    """Jobs with the seconds that each has executed, at time 0."""
    table = JobTable()
    for seq, (submitted, ran) in enumerate(rows):
        row = table.add(submitted, seq)
        table.set(row, TableColumns.RAN_BASE, ran)
        table.set(row, TableColumns.SERVICE_BASE, ran * submitted.demand.gpus)
    return table


def taught(seed: int = 1, ends: int = 400) -> tuple[Alike, list[Job]]:
    rng = np.random.default_rng(seed)
    users = [f"u{i}" for i in range(6)]
    predictor, jobs = Alike(), []
    for i in range(ends):
        user = users[int(rng.integers(6))]
        new = job(f"j{i}", int(2 ** rng.integers(5)), "t" + user[-1], user, model=f"m{i % 5}")
        jobs.append(new)
        predictor.note_submitted(new, float(i))
        how = [EndKind.COMPLETED, EndKind.FAILED, EndKind.CANCELLED, EndKind.LOST][
            int(rng.integers(4))
        ]
        predictor.learn(ended(new, float(rng.lognormal(6.0, 2.0)), how, float(i)))
    return predictor, jobs


def test_all_rows_at_once_are_what_each_row_is_by_itself() -> None:
    predictor, jobs = taught()
    rng = np.random.default_rng(2)
    rows = [
        (known, 0.0 if i % 3 else float(rng.lognormal(6, 3))) for i, known in enumerate(jobs[:60])
    ]
    rows = [
        (
            Job(
                JobId(f"n{i}"),
                demand=known.demand,
                tenant=known.tenant,
                user=known.user,
                model=known.model,
            ),
            ran,
        )
        for i, (known, ran) in enumerate(rows)
    ]
    table = table_of(*rows)

    quantiles, means = predictor.quantiles(table, 0.0, P), predictor.mean(table, 0.0)

    for row, (known, ran) in enumerate(rows):
        samples = [predictor._single.sample(level.key) for level in levels_of(known)]
        blended, _ = mix([s for s in samples if s is not None], ran, 4.0, prior(ran))
        expected = np.maximum(quantile(blended, P) - ran, 1.0)
        assert quantiles[row].tolist() == pytest.approx(expected.tolist(), rel=1e-4)
        assert means[row] == pytest.approx(max(mean_of(blended) - ran, 1.0), rel=1e-9)


def test_an_index_of_few_rows_is_that_of_many() -> None:
    predictor, jobs = taught()
    rows = [(known, 0.0) for known in jobs[:60]]
    ages = np.random.default_rng(3).lognormal(5.0, 3.0, (60, 4))
    ages[::3, 0] = 0.0

    together = predictor.index_at(table_of(*rows), 0.0, ages)

    for i, row in enumerate(rows):
        alone = predictor.index_at(table_of(row), 0.0, ages[i : i + 1])
        assert alone[0].tolist() == pytest.approx(together[i].tolist(), rel=1e-9)


def test_what_is_kept_between_calls_never_shows() -> None:
    warm, jobs = taught()
    rows = [(known, 0.0) for known in jobs[:50]]
    table = table_of(*rows)
    warm.quantiles(table, 0.0)
    warm.mean(table, 0.0)
    for known in jobs[50:58]:
        warm.learn(ended(known, 77.0, at=900.0))
        cold = copy.deepcopy(warm)
        assert warm.mean(table, 0.0).tolist() == cold.mean(table, 0.0).tolist()
        assert warm.quantiles(table, 0.0).tolist() == cold.quantiles(table, 0.0).tolist()
    other = table_of(*[(job("x", 16, "t0", "u0", model="m1"), 0.0), *rows[1:]])
    assert warm.mean(other, 0.0).tolist() == copy.deepcopy(warm).mean(other, 0.0).tolist()


def test_the_same_ends_make_the_same_state_and_a_copy_goes_on_alike() -> None:
    first, jobs = taught()
    second, _ = taught()
    assert json.dumps(first.save()) == json.dumps(second.save())

    again = Alike()
    again.load(json.loads(json.dumps(first.save())))
    twin, sent = copy.deepcopy(first), pickle.loads(pickle.dumps(first))
    table = table_of(*[(known, 30.0 * i) for i, known in enumerate(jobs[:20])])
    for predictor in (again, twin, sent):
        predictor.learn(ended(jobs[0], 5.0))
        assert predictor.scores() == again.scores()
    first.learn(ended(jobs[0], 5.0))
    for predictor in (again, twin, sent):
        assert predictor.quantiles(table, 0.0).tolist() == first.quantiles(table, 0.0).tolist()
        assert json.dumps(predictor.save()) == json.dumps(first.save())


def test_ends_of_all_kinds_count_but_not_those_that_were_lost() -> None:
    predictor = Alike(shrink=0.0)
    for how, ran in ((EndKind.FAILED, 10.0), (EndKind.CANCELLED, 20.0), (EndKind.LOST, 9999.0)):
        predictor.learn(ended(job("a"), ran, how))

    assert predictor.mean(table_of((job("b"), 0.0)), 0.0).tolist() == pytest.approx(
        [15.17], rel=0.01
    )


def test_before_the_first_end_nothing_is_known() -> None:
    table = table_of((job("a"), 0.0))

    assert Alike().mean(table, 0.0).tolist() == [np.inf]
    assert Alike(unknown="first").remaining(table, 0.0).tolist() == [1.0]
    assert 480.0 < Alike(unknown="prior").mean(table, 0.0)[0] < 10_000.0
    assert Alike().quantiles(table, 0.0)[0, 1] == pytest.approx(480.0)


def test_the_estimate_of_a_job_that_outlives_all_others_grows_with_it() -> None:
    predictor, _ = taught()
    long = job("long", 1, "t0", "u0", model="m0")
    left = [predictor.mean(table_of((long, ran)), 0.0)[0] for ran in (1e6, 2e6, 4e6)]

    assert left[0] < left[1] < left[2]
    assert left[2] > 4e6


def test_the_first_of_many_alike_is_worth_what_it_tells_of_the_others() -> None:
    predictor, plain = Alike(point="first"), Alike()
    for i in range(60):  # one of ten is very long
        for learner in (predictor, plain):
            learner.learn(ended(job(f"e{i}", 8), 1e5 if i % 10 == 0 else 5.0))

    def waiting(count: int) -> JobTable:
        return table_of(*[(job(f"w{i}", 8), 0.0) for i in range(count)])

    few, some, many = (predictor.remaining(waiting(n), 0.0) for n in (1, 10, 300))
    mean = plain.remaining(waiting(1), 0.0)[0]
    assert few[0] == pytest.approx(mean)
    assert mean / 12.0 < some.max() < mean / 6.0
    assert 5.0 < many.max() < 50.0
    assert many.min() == many.max()
    # Who runs is told of by itself, and others are not alike.
    mixed = table_of((job("r", 8), 600.0), (job("other", 1), 0.0), (job("w", 8), 0.0))
    assert predictor.remaining(mixed, 0.0) == pytest.approx(plain.remaining(mixed, 0.0))


def test_a_time_limit_bounds_what_is_left() -> None:
    predictor = Alike()
    predictor.learn(ended(job("a"), 5000.0))
    limited = job("b", launch=Launch(("true",), time_limit_s=600.0))

    table = table_of((limited, 0.0), (limited, 500.0), (job("c"), 0.0))

    assert predictor.mean(table, 0.0).max() > 600.0
    assert predictor.quantiles(table, 0.0)[:2, 2].tolist() == [600.0, 100.0]


def test_a_streak_of_failures_is_a_risk() -> None:
    predictor = Alike()
    for i in range(100):
        how = EndKind.FAILED if i % 4 == 0 else EndKind.COMPLETED
        predictor.learn(ended(job(f"o{i}", 1, "t", "other"), 100.0, how))
    mine = job("m", 1, "t", "me", launch=Launch(("python", "train.py", "--lr", "0.1")))
    for _ in range(5):
        predictor.learn(ended(mine, 12.0, EndKind.FAILED))

    risk = predictor.risk(mine)

    assert risk.streak == 5
    assert risk.p_fail > 0.6
    assert risk.after_s == 12.0
    assert risk.key == "your last 5 runs of train.py with 1 GPU"
    assert predictor.risk(job("x", 1, "t", "other")).p_fail < 0.4
    assert Alike().risk(mine).p_fail == 0.0


def test_the_basis_names_the_group_in_words() -> None:
    predictor = Alike()
    mine = job("m", 4, "t", "me", launch=Launch(("python", "train.py", "--lr", "0.1")))
    assert predictor.basis(mine).level == ""
    for _ in range(6):
        predictor.learn(ended(mine, 2400.0, at=7.0))

    basis = predictor.basis(mine)

    assert basis.level == "your last 6 runs of train.py with 4 GPUs"
    assert (basis.count, basis.newest_end) == (6, 7.0)


def test_draws_follow_the_quantiles() -> None:
    predictor, jobs = taught()
    table = table_of(*[(jobs[0], 0.0)] * 1)
    rng = np.random.default_rng(0)
    drawn = np.array([predictor.draw(table, 0.0, rng)[0] for _ in range(150)])
    low, middle, high = predictor.quantiles(table, 0.0)[0]

    assert (drawn < low).mean() < 0.18
    assert 0.36 < (drawn <= middle).mean() < 0.66
    assert (drawn <= high).mean() > 0.84


def test_ranges_come_to_hold_for_four_of_five_jobs() -> None:
    rng = np.random.default_rng(3)
    predictor = Alike()
    for i in range(900):
        new = job(f"j{i}", 1, "t", f"u{i % 3}")
        predictor.note_submitted(new, float(i))
        # Lengths drift upwards all the time, which plain quantiles of the past do not follow.
        predictor.learn(ended(new, float(rng.lognormal(4.0 + i / 300.0, 1.0)), at=float(i)))

    scores = predictor.scores()

    assert scores.count == 500
    assert 0.74 < scores.coverage < 0.86
    at_submission = [score for score in scores.classes if score.name.endswith("/0")]
    assert all(0.72 < score.coverage < 0.88 for score in at_submission if score.count > 200)


def test_groups_that_nobody_touches_are_dropped() -> None:
    predictor = Alike(groups=20)
    for i in range(100):
        predictor.learn(ended(job(f"j{i}", 1, f"t{i}", f"u{i}"), 10.0))

    assert len(predictor.save()["alike"]["rings"]) == 20
    assert predictor.mean(table_of((job("j", 1, "t0", "u0"), 0.0)), 0.0)[0] < 500.0


@pytest.mark.parametrize("bad", [{"ring": 1}, {"half": 0.0}, {"shrink": -1.0}, {"groups": 1}])
def test_alike_refuses_numbers_that_mean_nothing(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match="alike"):
        Alike(**bad)  # type: ignore[arg-type]
