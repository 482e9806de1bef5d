"""Gittins: the past decides who is about to end, once there is enough of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.core.events.event import Decided, Started, Stopped, Submitted
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.policies.gittins import Gittins
from weft.testing.build import cluster_of

OLD, NEW = JobId("old"), JobId("new")


def after_a_stop() -> View:
    """On one GPU: a job that has had 4,000 s of service waits beside one that has had none."""
    state = State(cluster_of(1))
    state.fold(0.0, Submitted(Job(OLD, demand=Demand(1))))
    state.fold(0.0, Decided(1, {OLD: Allocation((state.free.slice(0, 1),))}))
    state.fold(0.0, Started(OLD, 1))
    state.fold(4000.0, Decided(2, {OLD: None}))
    state.fold(4000.0, Stopped(OLD, 1))
    state.fold(4000.0, Submitted(Job(NEW, demand=Demand(1))))
    return View(4000.0, state.table, state.cluster, state.free)


@pytest.mark.parametrize(("ended", "first"), [(0, NEW), (99, NEW), (100, OLD)])
def test_a_hundred_jobs_that_ended_are_believed_before_what_is_published(
    ended: int, first: JobId
) -> None:
    # All of them took 6,000 s: who has had 4,000 ends within its step, who has had none does not.
    # By the published distribution those end soonest who have had least.
    view = replace(after_a_stop(), history=np.full(ended, 6000.0))

    assert set(view.after(Gittins().decide(view))) == {first}
