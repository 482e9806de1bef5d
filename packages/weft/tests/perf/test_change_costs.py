"""What a simulation charges for starts and changes: as published, or as our runtime takes."""

from __future__ import annotations

import pytest

from weft.app.simulate.setup import read_resize
from weft.core.errors import InvalidConfig
from weft.core.model.job import Job, JobId
from weft.perf.change_costs import StatedCosts
from weft.perf.replay import Replay

BERT = Job(JobId("a"), model="bert")


def test_a_stopped_job_comes_back_as_fast_as_it_is_told_to_and_a_first_start_is_as_before() -> None:
    terms = read_resize("live:restart_s=0.7,restart_gb_s=10")
    assert terms is not None
    published = StatedCosts(Replay(60.0))
    measured = StatedCosts(Replay(60.0), live=True, later=terms.restart_of)

    assert published.start_s(BERT, first=False) == 60.0
    assert measured.start_s(BERT, first=False) == pytest.approx(0.7 + 10.0 * 1.32)
    assert measured.costs(BERT).prepare_s == measured.costs(BERT).restart_s
    assert measured.start_s(BERT, first=True) == published.start_s(BERT, first=True)


def test_without_terms_of_its_own_a_later_start_is_the_published_one() -> None:
    terms = read_resize("live:prepare_s=5")
    assert terms is not None

    assert terms.restart_of(BERT) is None


def test_seconds_below_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="restart_gb_s"):
        read_resize("live:restart_s=1,restart_gb_s=-1")
