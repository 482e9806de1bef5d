"""What is left of jobs of one size: predictions in steps, the past, and gangs that are kept out."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from weft.core.events.job_end import Ended, EndKind
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.pieces.order.plain_left import SECONDS, LengthEstimates, next_rise, plain_left
from weft.policies.weft.plain import raise_gang
from weft.predict.alike.predictor import Alike
from weft.testing import view_of

UNKNOWN = np.array([np.nan])
ALL = np.array([True])


def alike(*lengths: float) -> Alike:
    """A predictor that saw jobs of one GPU take so long."""
    made = Alike()
    for number, length in enumerate(lengths):
        job = Job(JobId(f"past{number}"), demand=Demand(1))
        made.learn(
            Ended(job, length, length, finished=True, how=EndKind.COMPLETED, at=float(number))
        )
    return made


def ran(view: View, seconds: float) -> View:
    """The first job has executed for so long."""
    view.table.set(0, TableColumns.RAN_BASE, seconds)
    view.table.set(0, TableColumns.SERVICE_BASE, seconds)
    return view


def test_a_certain_length_is_counted_down() -> None:
    view = ran(view_of(8, ("a", 1, 300.0)), 100.0)

    first = plain_left(view, UNKNOWN, LengthEstimates())
    later = plain_left(ran(view, 110.0), UNKNOWN, first.estimates)

    assert first.seconds.tolist() == [300.0]
    assert later.seconds.tolist() == [290.0]
    assert next_rise(view, later, ALL, np.array([100.0])) == 290.0  # it is outlived then


def test_who_outlives_it_needs_as_much_again_in_doublings_of_a_minute() -> None:
    view = ran(view_of(8, ("a", 1, 0.0)), 100.0)

    left = plain_left(view, UNKNOWN, LengthEstimates())

    assert left.seconds.tolist() == [120.0]
    assert next_rise(view, left, ALL, np.array([120.0])) == pytest.approx(20.0)
    assert next_rise(view, left, ALL, np.array([240.0])) == pytest.approx(140.0)


def test_a_spread_prediction_is_asked_for_again_at_the_next_doubling_alone() -> None:
    past = [30.0] * 50 + [8000.0] * 10
    view = ran(view_of(8, ("a", 1, inf)), 70.0)
    view = replace(view, knowledge=Knowledge(alike(*past)))

    first = plain_left(view, UNKNOWN, LengthEstimates())
    same = plain_left(ran(view, 119.0), UNKNOWN, first.estimates)
    later = plain_left(ran(view, 121.0), UNKNOWN, same.estimates)

    assert first.seconds[0] > 500.0  # all the short ones have ended
    assert same.seconds.tolist() == first.seconds.tolist()
    assert later.seconds[0] != first.seconds[0]
    assert later.estimates.predicted.tolist() == first.estimates.predicted.tolist()
    assert next_rise(view, later, ALL, np.array([0.0])) == pytest.approx(119.0)


def test_it_is_asked_for_again_once_a_job_is_twice_as_old() -> None:
    view = replace(view_of(8, ("a", 1, inf)), knowledge=Knowledge(alike(*[30.0] * 50)))
    first = plain_left(view, UNKNOWN, LengthEstimates())
    more = replace(view, knowledge=Knowledge(alike(*[9000.0] * 50)))

    soon = plain_left(replace(more, now=view.now + 599.0), UNKNOWN, first.estimates)
    later = plain_left(replace(more, now=view.now + 600.0), UNKNOWN, first.estimates)

    assert soon.seconds.tolist() == first.seconds.tolist()
    assert later.seconds[0] > 10.0 * first.seconds[0]


def test_what_was_predicted_stays_with_its_job_when_others_leave_and_come() -> None:
    view = replace(
        view_of(8, *((name, 1, inf) for name in "abc")), knowledge=Knowledge(alike(60.0))
    )
    nothing = np.full(3, np.nan)
    before = plain_left(view, nothing, LengthEstimates()).estimates
    marked = before.predicted.copy()
    marked[:, SECONDS:] = np.array([[1000.0], [2000.0], [3000.0]])
    part = view.without(np.array([False, True, False]))

    left = plain_left(part, nothing[:2], LengthEstimates(marked))
    again = plain_left(view, nothing, left.estimates)

    assert left.seconds.tolist() == [1000.0, 3000.0]
    assert again.seconds.tolist()[::2] == [1000.0, 3000.0]
    assert again.seconds[1] not in (1000.0, 2000.0, 3000.0)


def test_a_job_that_has_not_run_is_thought_to_be_one_of_the_short_ones() -> None:
    past = [30.0] * 50 + [8000.0] * 10
    view = view_of(8, ("a", 1, inf))

    left = plain_left(replace(view, knowledge=Knowledge(alike(*past))), UNKNOWN, LengthEstimates())

    assert left.seconds[0] < 100.0
    assert left.seconds[0] < plain_left(ran(view, 9000.0), UNKNOWN, LengthEstimates()).seconds[0]


def test_what_a_job_reports_comes_before_what_is_predicted() -> None:
    left = plain_left(view_of(8, ("a", 1, 300.0)), np.array([40.0]), LengthEstimates())

    assert left.seconds.tolist() == [40.0]
    assert next_rise(view_of(8, ("a", 1, 300.0)), left, ALL, np.array([0.0])) == inf


def test_without_a_predictor_the_service_of_past_jobs_tells() -> None:
    view = replace(view_of(8, ("a", 1, inf), ("b", 4, inf)), history=np.full(200, 400.0))

    left = plain_left(view, np.full(2, np.nan), LengthEstimates())

    assert left.seconds.tolist() == pytest.approx([400.0, 100.0])
    assert left.estimates.past is not None
    assert left.estimates.past.seen == 200


def test_beyond_all_past_jobs_less_than_one_of_them_would_end() -> None:
    view = replace(ran(view_of(8, ("a", 1, inf)), 4000.0), history=np.full(200, 400.0))

    left = plain_left(view, UNKNOWN, LengthEstimates())

    assert left.seconds.tolist() == [200 * 6500.0]


def raised(*jobs: tuple[str, int, float]) -> str:
    """The first of the order on eight GPUs."""
    view = view_of(8, *jobs)
    seconds = np.array([left for _, _, left in jobs])
    order = view.ranked(seconds * view.table.need)
    return view.job(int(raise_gang(view, order, 1.0 / seconds, 0)[0][0])).id


def test_a_gang_goes_before_small_jobs_where_more_ends_by_that() -> None:
    small = ("small", 1, 400.0)  # the fewest GPU-seconds, and the gang cannot run beside it

    assert raised(small, ("gang", 8, 60.0), ("long", 4, 9000.0)) == "gang"


def test_a_gang_waits_where_the_small_jobs_end_more() -> None:
    small = [(f"small{i}", 1, 60.0) for i in range(7)]

    assert raised(*small, ("gang", 8, 60.0), ("long", 1, 9000.0)) == "small0"


def test_whoever_may_not_be_stopped_stays_before_the_gang() -> None:
    view = view_of(8, ("firm", 1, 9000.0), ("gang", 8, 60.0), ("other", 2, 9000.0))
    rate = np.array([1.0 / 9000.0, 1.0 / 60.0, 1.0 / 9000.0])

    assert raise_gang(view, np.array([0, 1, 2]), rate, 1)[0].tolist() == [0, 1, 2]
