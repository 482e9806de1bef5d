"""Predictors of papers, by their worked examples."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.job_end import Ended, EndKind
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.core.spec.registry import build
from weft.core.state.cells import TableColumns
from weft.core.state.table import JobTable
from weft.predict.alike.predictor import failure_chance
from weft.predict.calibration import next_outside_share, pinball
from weft_papers.pai.group import PaiGroup, _mean, fit_groups
from weft_papers.pai.history import PaiHistory
from weft_papers.qssf.cart import Leaf, Split, follow, grow
from weft_papers.qssf.predictor import QssfPredictor, merge, similar_names
from weft_papers.three_sigma.predictor import ThreeSigma


def job(name: str, gpus: int = 1, user: str = "u", called: str = "") -> Job:
    launch = Launch(("true",), name=called) if called else None
    return Job(JobId(name), demand=Demand(gpus), user=user, launch=launch)


def ended(job: Job, ran: float) -> Ended:
    return Ended(job, ran, ran * job.demand.gpus, finished=True, how=EndKind.COMPLETED)


def left(predictor: object, job: Job, ran: float = 0.0) -> float:
    table = JobTable()
    table.add(job, 0)
    table.set(0, TableColumns.RAN_BASE, ran)
    return float(predictor.remaining(table, 0.0)[0])  # type: ignore[attr-defined]


def test_qssf_merges_a_tenth_of_the_rolling_estimate_with_the_model() -> None:
    qssf = QssfPredictor()
    for ran in (1000.0, 3000.0):
        qssf.learn(ended(job("a", 4, called="resnet"), ran))
    rolling = 4 * left(qssf, job("b", 4, called="resnet"))

    assert rolling == 8000.0
    assert merge(rolling, 4 * 500.0) == pytest.approx(2600.0)
    assert merge(rolling, 4 * -50.0) == 8000.0


def test_qssf_finds_names_that_are_alike() -> None:
    known = ["resnet50_lr01", "resnet50_lr02", "bert_large_squad", "gpt2-small"]

    assert sorted(similar_names("resnet50_lr03", known)) == ["resnet50_lr01", "resnet50_lr02"]
    assert similar_names("bert_base_squad", known) == ["bert_large_squad"]
    assert similar_names("yolo", known) == []


def test_qssf_widens_from_the_name_to_everybody() -> None:
    qssf = QssfPredictor(refresh=True)
    qssf.learn(ended(job("a", 1, "ann", "train"), 100.0))
    qssf.learn(ended(job("b", 1, "ann", "eval"), 300.0))
    qssf.learn(ended(job("c", 1, "bob", "train"), 900.0))

    assert left(qssf, job("x", 1, "ann", "train")) == 100.0
    assert left(qssf, job("y", 8, "ann", "train")) == 100.0  # no such size: any
    assert left(qssf, job("z", 1, "eve", "train")) == 500.0  # a new user: everybody's
    assert left(qssf, job("v", 1, "ann", "zzzz")) == 200.0  # no such name: the user's
    assert left(qssf, job("w", 1, "eve", "zzzz")) == pytest.approx(1300.0 / 3)


def test_qssf_means_runs_of_as_many_gpus_and_else_of_the_two_closest_names() -> None:
    qssf = QssfPredictor(refresh=True)
    for name, gpus, ran in (("sq1", 4, 100.0), ("sq1", 8, 900.0), ("sq2", 4, 300.0)):
        qssf.learn(ended(job("a", gpus, "ann", name), ran))
    qssf.learn(ended(job("a", 4, "ann", "sq99999"), 5000.0))

    asked = [(4, "ann", "sq1"), (8, "ann", "sq1"), (2, "ann", "sq1")]
    # Nobody ran `sq3`: the runs of `sq1` and `sq2`, of this size where there are any. Of somebody
    # new: others' runs of the name, of any size.
    asked += [(4, "ann", "sq3"), (1, "ann", "sq3"), (8, "eve", "sq1")]
    estimates = [left(qssf, job(f"x{i}", *traits)) for i, traits in enumerate(asked)]
    assert estimates == [100.0, 900.0, 500.0, 200.0, pytest.approx(1300.0 / 3), 500.0]


def test_qssf_keeps_its_first_estimate_unless_refreshed() -> None:
    frozen, fresh = QssfPredictor(), QssfPredictor(refresh=True)
    for qssf in (frozen, fresh):
        qssf.learn(ended(job("a"), 100.0))
        qssf.note_submitted(job("w"), 0.0)
        assert left(qssf, job("w")) == 100.0
        qssf.learn(ended(job("b"), 300.0))

    assert left(frozen, job("w")) == 100.0
    assert left(fresh, job("w")) == 200.0


def test_qssf_forgets_the_names_that_ended_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_papers.qssf.predictor.MOST_NAMES", 2)
    qssf = QssfPredictor(refresh=True)
    for name, ran in (("train", 100.0), ("eval", 300.0), ("train", 200.0), ("probe", 900.0)):
        qssf.learn(ended(job("a", 1, "ann", name), ran))

    assert left(qssf, job("x", 1, "ann", "train")) == 150.0
    assert left(qssf, job("y", 1, "ann", "eval")) == 400.0  # of all that is still known


@pytest.mark.parametrize(
    ("by", "expected"), [("mean", 20.0), ("moving", 25.0), ("reciprocal", 0.06111)]
)
def test_pai_history_has_three_means_of_a_user(by: str, expected: float) -> None:
    history = PaiHistory(by=by, window=2)  # type: ignore[arg-type]
    for ran in (10.0, 20.0, 30.0):
        history.learn(ended(job("a"), ran))

    assert history.estimate(job("b")) == pytest.approx(expected, abs=1e-5)
    assert history.estimate(job("c", user="new")) == 1.0


def test_three_sigma_uses_the_attribute_that_told_best() -> None:
    sigma = ThreeSigma()
    for i in range(20):  # size tells nothing, the user everything
        sigma.learn(ended(job(f"a{i}", 1, "short"), 60.0 + i % 3))
        sigma.learn(ended(job(f"b{i}", 1, "long"), 6000.0 + i % 3))

    assert left(sigma, job("x", 1, "short")) == pytest.approx(61.0, abs=1.0)
    assert left(sigma, job("y", 1, "long"), ran=100.0) == pytest.approx(5901.0, abs=1.0)
    assert left(sigma, job("z", 1, "long"), ran=6602.0) == 60.0 * 8  # expired three times


@pytest.mark.parametrize("name", ["last", "pai-history", "qssf", "three-sigma"])
def test_what_was_learnt_is_taken_up_again(name: str) -> None:
    first, second = build("predictor", name), build("predictor", name)
    for i in range(12):
        first.learn(ended(job(f"j{i}", 1 + i % 2, f"u{i % 3}", "train"), 10.0 * i + 1.0))
    second.load(json.loads(json.dumps(first.save())))
    for history in (first, second):
        history.learn(ended(job("k", 1, "u1", "train"), 77.0))

    assert json.dumps(first.save()) == json.dumps(second.save())
    history = job("x", 1, "u1", "train")
    assert left(first, history) == left(second, history)


def test_scores_by_the_book() -> None:
    logs = [pinball([q], 1000.0, [p]) for q, p in ((200, 0.1), (800, 0.5), (4000, 0.9))]
    assert logs == pytest.approx([0.1609, 0.1116, 0.1386], abs=1e-4)

    alpha, scores = 0.2, []
    for missed in (True, False, False, True, True):
        alpha = next_outside_share(alpha, missed, 0.05)
        scores.append(round(alpha, 6))
    assert scores == [0.16, 0.17, 0.18, 0.14, 0.10]


@pytest.mark.parametrize(("failed", "chance"), [(5, 0.6711), (4, 0.56), (0, 0.1156)])
def test_the_chance_to_fail_shrinks_towards_the_wider_group(failed: int, chance: float) -> None:
    assert failure_chance(failed, 5, 0.26) == pytest.approx(chance, abs=1e-4)


# ---- recurring groups


def test_a_tree_finds_the_step_between_two_levels() -> None:
    x = np.array([[float(i), float(i % 3)] for i in range(40)])
    y = np.where(x[:, 0] < 25.0, 1.0, 9.0)

    tree = grow(x, y)

    assert isinstance(tree, Split)
    assert (tree.feature, tree.threshold) == (0, 24.5)
    assert [follow(tree, row) for row in x] == y.tolist()
    assert grow(x[:9], y[:9]) == Leaf(1.0)  # too few for two leaves of five


def test_recurring_groups_are_told_apart_and_taken_up_again_from_a_snapshot() -> None:
    groups = PaiGroup()
    for i in range(60):
        name, ran = ("short", 100.0) if i % 2 else ("long", 10_000.0)
        groups.learn(ended(recurring(f"j{i}", name, i), ran))

    assert left(groups, recurring("a", "short", 99)) == pytest.approx(100.0, rel=0.01)
    assert left(groups, recurring("b", "long", 99)) == pytest.approx(10_000.0, rel=0.01)

    again = PaiGroup()
    again.load(json.loads(json.dumps(groups.save())))
    for name in ("short", "long", "new"):
        known = recurring("c", name, 7)
        assert left(again, known) == left(groups, known)


def group(name: str, gpus: int = 1, user: str = "u") -> Job:
    return Job(JobId(name), demand=Demand(gpus), user=user, model=name)


def test_a_jobs_own_end_is_not_in_the_means_that_predict_it() -> None:
    # Each user has one end: without it nothing tells them apart, and with it everything would.
    once = [(f"u{i}", "g", 1.0, float(i % 2)) for i in range(20)]
    assert fit_groups(once, 20, 1)["tree"] == 0.5
    # Ten ends of 1 and ten of 3: the mean of the nine others is 1 or 3, and the border 2.
    twice = [("ab"[i % 2], "g", 1.0, 1.0 + 2.0 * (i % 2)) for i in range(20)]
    assert fit_groups(twice, 20, 1)["tree"] == [0, 2.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("by", "seconds"),
    [
        ("group-user-gpus", (100.0, 1_600.0, 1_600.0)),
        ("group-user", (400.0, 400.0, 400.0)),
        ("user", (400.0, 400.0, 400.0)),
    ],
)
def test_gpus_tell_where_users_and_groups_are_new(by: str, seconds: tuple[float, ...]) -> None:
    """Lengths are averaged as logarithms: sqrt(100 x 1,600) is 400."""
    groups = PaiGroup(by=by)  # type: ignore[arg-type]
    for i in range(24):
        small = group(f"g{i}", 2 if i % 2 else 4, f"u{i}")
        groups.learn(ended(small, 100.0 if i % 2 else 1_600.0))

    estimates = [groups.estimate(group("new", gpus, "new")) for gpus in (1, 4, 8)]

    assert estimates == pytest.approx(seconds)


@pytest.mark.parametrize(("by", "apart"), [("group-user-gpus", 1), ("group-user", 1), ("user", 0)])
def test_groups_tell_a_users_jobs_apart_if_they_may(by: str, apart: bool) -> None:
    groups = PaiGroup(by=by)  # type: ignore[arg-type]
    for i in range(24):
        groups.learn(ended(group("ab"[i % 2], user=f"u{i}"), 100.0 if i % 2 else 1_600.0))

    estimates = [groups.estimate(group(name, user="new")) for name in "ab"]

    assert (estimates == pytest.approx([1_600.0, 100.0])) == apart
    assert apart or estimates[0] == estimates[1]


def test_users_tell_groups_that_were_never_seen_apart() -> None:
    groups = PaiGroup()
    for i in range(40):
        groups.learn(ended(group(f"g{i}", user="ab"[i % 2]), (100.0, 10_000.0)[i % 2]))

    assert groups.estimate(group("new", user="a")) == pytest.approx(100.0)
    assert groups.estimate(group("new", user="b")) == pytest.approx(10_000.0)
    # Somebody new is taken for the mean of all, which is below the border between both.
    assert groups.estimate(group("new", user="c")) in (pytest.approx(100.0), pytest.approx(1e4))


def test_a_tree_is_grown_at_twenty_ends_and_again_when_there_are_a_fifth_more() -> None:
    groups, grown = PaiGroup(), []
    for i in range(40):
        groups.learn(ended(group("ab"[i % 2]), 100.0 if i % 2 else 10_000.0))
        if (fit := groups.save()["fit"]["model"]) is not None:
            grown.append(fit["ends"])
        elif i == 18:
            assert groups.estimate(group("a")) == pytest.approx(
                100.0 ** (28 / 19) * 100.0 ** (1 / 19)
            )

    assert sorted(set(grown)) == [20, 24, 29, 35]


def test_a_part_of_more_gpus_counts_as_fewer() -> None:
    groups = PaiGroup()
    for i in range(24):
        small = group(f"g{i}", 2 if i % 2 else 4, f"u{i}")
        groups.learn(ended(small, 100.0 if i % 2 else 1_600.0))

    new = group("new", 4, "new")
    estimates = [
        groups.estimate(replace(new, demand=Demand(4, share=share))) for share in (0.5, 1.0)
    ]

    assert estimates == pytest.approx([100.0, 1_600.0])


def test_a_tree_is_grown_from_the_latest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_papers.pai.group.MOST", 30)
    groups = PaiGroup()
    for i in range(70):
        groups.learn(ended(group("a"), 100.0 if i < 35 else 10_000.0))

    # After the first 30 a tree is due after each six more: the last one at 65, from 30 of the 60
    # ends that are kept.
    assert len(groups.save()["ends"]) == 60
    assert groups.estimate(group("a")) == pytest.approx(10_000.0)


def test_a_tree_is_grown_from_five_thousand_ends_at_most() -> None:
    predictor = PaiGroup()
    for number in range(7_000):
        predictor.note_end(ended(group(f"g{number % 3}"), 100.0))

    work = predictor._fit().make

    assert isinstance(work, partial)
    assert len(work.args[0]) == 5_000


@pytest.mark.parametrize(
    ("key", "without", "mean"),
    [("user new", None, 3.0), ("user one", None, 7.0), ("user one", 7.0, 3.0)],
)
def test_who_has_no_other_end_counts_like_everybody(
    key: str, without: float | None, mean: float
) -> None:
    means = {"": (4.0, 12.0), "user one": (1.0, 7.0)}

    assert _mean(means, key, without) == mean


def test_pai_history_means_the_last_ten_ends() -> None:
    predictor = PaiHistory("moving")
    for number in range(20):
        predictor.learn(ended(job("a"), 100.0 if number < 10 else 200.0))

    assert left(predictor, job("b")) == 200.0


def test_pai_history_counts_no_window_below_one() -> None:
    assert PaiHistory(by="moving", window=1).window == 1
    with pytest.raises(InvalidConfig, match="window"):
        PaiHistory(window=0)


def recurring(name: str, script: str, number: int) -> Job:
    launch = Launch(("python", f"{script}.py", "--seed", str(number)))
    return Job(JobId(name), demand=Demand(1), user="u", launch=launch)
