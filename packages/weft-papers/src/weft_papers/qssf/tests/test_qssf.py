"""QSSF (Helios, SC 2021): the least predicted GPU time first, by its worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cheap import check_contract

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.policies.gittins import Gittins
from weft_papers.qssf.boosted import Shapes, Trees, fit_shapes, fit_trees
from weft_papers.qssf.cart import Leaf, Split, follow, from_plain, grow, to_plain
from weft_papers.qssf.policy import Qssf

Spec = tuple[str, int, float, float]
QUEUE: tuple[Spec, ...] = (("first", 4, 0, 100), ("wide", 4, 1, 10), ("thin", 1, 2, 30))


def jcts(jobs: tuple[Spec, ...], policy: str, predictor: str = "oracle") -> list[float]:
    pairs = tuple((Job(JobId(n), s, Demand(g), user=n), Truth(t)) for n, g, s, t in jobs)
    trace = Trace("worked", pairs)
    result = weft.simulate(trace, policy, "1x4:v100", predictor=predictor, restart_cost=0.0)
    return [round(float(t), 6) for t in result.outcomes[policy][0].per_job.jct_s]


def test_the_least_gpu_time_goes_first_and_nobody_is_stopped() -> None:
    # thin has 30 GPU-seconds and wide 40: wide has the shorter length, and yet waits.
    assert jcts(QUEUE, "qssf") == [100.0, 139.0, 128.0]
    assert jcts(QUEUE, "sjf") == [100.0, 109.0, 138.0]


def test_who_does_not_fit_holds_up_the_rest() -> None:
    jobs: tuple[Spec, ...] = (("a", 3, 0, 100), ("b", 2, 1, 10), ("c", 1, 2, 90))

    assert jcts(jobs, "qssf") == [100.0, 109.0, 188.0]


def test_the_contract_holds() -> None:
    check_contract(Qssf())
    check_contract(Gittins(predicted=True))


def test_gittins_reads_each_jobs_own_distribution() -> None:
    # The truth is one number, so the index is the inverse of the GPU time left.
    jobs: tuple[Spec, ...] = (("long", 4, 0, 400), ("short", 4, 10, 50))

    assert jcts(jobs, "gittins:predicted=true") == pytest.approx([450.0, 50.0])


# ---- the models: trees, and sums of small ones


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


def test_a_tree_splits_where_least_is_left_and_stops_at_its_depth_and_size() -> None:
    x, y = column(*range(8)), np.array([0.0, 0.0, 0.0, 1.0, 9.0, 9.0, 9.0, 10.0])

    once, twice = grow(x, y, depth=1, least=1), grow(x, y, depth=2, least=1)

    assert to_plain(once) == [0, 3.5, 0.25, 9.25]
    assert to_plain(twice) == [0, 3.5, [0, 2.5, 0.0, 1.0], [0, 6.5, 9.0, 10.0]]
    assert to_plain(grow(x, y, least=2)) == [0, 3.5, [0, 1.5, 0.0, 0.5], [0, 5.5, 9.0, 9.5]]
    assert grow(x, y, least=5) == Leaf(4.75)
    assert isinstance(grow(x, y, least=4), Split)
    assert grow(x, y, depth=0) == Leaf(4.75)
    assert grow(x, np.full(8, 3.0), least=1) == Leaf(3.0)
    assert from_plain(to_plain(twice)) == twice
    assert [follow(twice, np.array([at])) for at in (2.5, 2.6, 6.5, 6.6)] == [0.0, 1.0, 9.0, 10.0]


def test_no_other_split_leaves_less_of_the_squared_error() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        x, y = rng.integers(0, 6, (30, 2)).astype(float), rng.lognormal(0.0, 1.5, 30)
        least, tree = 3, grow(x, y, depth=1, least=3)
        assert isinstance(tree, Split)

        errors = {}
        for feature in (0, 1):
            for value in np.unique(x[:, feature]):
                low = x[:, feature] <= value
                if least <= low.sum() <= 30 - least:
                    parts = (y[low], y[~low])
                    errors[feature, value] = sum(len(part) * part.var() for part in parts)

        left = x[:, tree.feature] <= tree.threshold
        assert (tree.feature, x[left, tree.feature].max()) == min(errors, key=errors.__getitem__)


def test_equal_values_of_a_feature_are_not_split_and_the_telling_feature_is_taken() -> None:
    x = np.array([[0, 5], [0, 5], [0, 6], [0, 6], [1, 5], [1, 6]], dtype=float)
    y = np.array([0.0, 1.0, 4.0, 5.0, 0.0, 5.0])

    assert to_plain(grow(x, y, depth=1, least=1)) == [1, 5.5, pytest.approx(1 / 3), 14 / 3]


def test_boosting_takes_a_tenth_off_what_is_left_forty_times() -> None:
    # Of a step of 50 up and down around the mean 0.9^40 is left.
    x = column(*[0.0] * 20, *[1.0] * 20)
    y = np.where(x[:, 0] > 0.0, 100.0, 0.0)

    trees = fit_trees(x, y)

    low, high = (trees.predict(np.array([at])) for at in (0.0, 1.0))
    assert (low, high) == pytest.approx((50.0 * 0.9**40, 100.0 - 50.0 * 0.9**40))
    assert Trees.load(trees.save()) == trees
    few = fit_trees(x[1:], y[1:])  # 19 rows are too few for a leaf
    assert few.mean == pytest.approx(2000.0 / 39.0)
    assert few.trees == ()


def test_trees_that_are_added_up_are_five_deep() -> None:
    # Six bits that weigh 1 to 32: five splits find all but the least.
    bits = np.arange(64)[:, None] >> np.arange(6) & 1
    x, y = np.repeat(bits.astype(float), 20, axis=0), np.repeat(np.arange(64.0), 20)

    first = fit_trees(x, y).trees[0]

    assert follow(first, np.ones(6)) == follow(first, np.array([0.0, 1, 1, 1, 1, 1])) == 62.5 - 31.5


@pytest.mark.parametrize(("rows", "left"), [(40, 0.95**200), (10, 0.975**200)])
def test_shapes_move_by_a_twentieth_of_what_is_left_in_a_bin(rows: int, left: float) -> None:
    """A bin of fewer than 20 rows counts as 20."""
    x = column(*[0.0] * rows, *[1.0] * rows)

    shapes = fit_shapes(x, np.where(x[:, 0] > 0.0, 100.0, 0.0))

    estimates = [shapes.predict(np.array([at])) for at in (0.0, 1.0, 0.5, 1 / 32, 1 / 32 + 1e-9)]
    assert estimates == pytest.approx([50.0 * left, 100.0 - 50.0 * left, 50.0, 50.0 * left, 50.0])
    assert Shapes.load(shapes.save()).predict(np.array([1.0])) == estimates[1]


def test_the_pair_that_tells_most_of_what_features_leave_is_first() -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2, (400, 7)).astype(float)
    x[:8] = 3.0  # eight rows far out
    y = 50.0 * (x[:, 5] != x[:, 6]) + 10.0 * (x[:, 0] != x[:, 3])

    shapes = fit_shapes(x, y)

    assert shapes.pairs[:2] == ((5, 6), (0, 3))
    assert len(shapes.pairs) == 20  # of 21
    row = np.array([0.0, 1, 0, 0, 1, 0, 1])
    assert shapes.predict(row) == pytest.approx(50.0, abs=2.0)
    row[3] = 1.0
    assert shapes.predict(row) - shapes.predict(row - [0, 0, 0, 0, 0, 0, 1]) > 35.0
