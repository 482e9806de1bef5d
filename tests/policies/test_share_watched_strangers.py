"""Policies that share devices do so with jobs that say nothing, once these were watched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.core.events.actions import Start
from weft.core.events.event import Event, Finished, Observed, Reported, Started, Submitted, Woken
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.core.state.cells import TableColumns
from weft.perf.linear import LinearBeliefs
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of, unordered
from weft.predict.none import NoPredictor

POLICIES = (
    "muri:known=false",
    "muri:known=false,discipline=work-conserving",
    "iadeep",
    "gandiva:quantum=10",
    "antman",
)
LUCID = "lucid:packing=on,limit_s=1000,corner=0"  # it never stops a job to look at another


class Cluster:
    """One H200 and two jobs without a model, a hint or an estimate; both wait for data a lot."""

    def __init__(self, policy: str, *, watched: bool) -> None:
        knowledge = Knowledge(
            NoPredictor(), LinearBeliefs(), Colocated(profile_of, unordered("timeslicing"))
        )
        self.scheduler = Scheduler(
            build("policy", policy), parse_cluster("1x1:h200"), knowledge=knowledge
        )
        self.watched, self.now = watched, 0.0

    def run(self, seconds: float) -> bool:
        """Let time pass; whether both jobs ever had the device together."""
        jobs = [stranger("first"), stranger("second", Tier.OPPORTUNISTIC)]
        shared = False
        for job in jobs:
            self.step(Submitted(job))
        while self.now < seconds:
            held = [on for on in self.scheduler.state.table.allocations if on is not None]
            shared = shared or len(held) == 2
            for job, on in zip(jobs, self.scheduler.state.table.allocations, strict=True):
                if on is None:
                    continue
                attempt = self.attempt(job.id)
                if self.watched:
                    self.step(Reported(job.id, attempt, report(self.now)))
                pace = 0.9 if len(held) == 2 else None
                self.step(Observed(job.id, attempt, 9.0 + self.now / 1000.0, pace))
            self.step(Woken())
        return shared

    def see_program(self, name: str) -> None:
        """A run of it alone, from beginning to end."""
        before = replace(stranger(name), id=JobId(f"{name}-before"))
        self.step(Submitted(before))
        if self.watched:
            self.step(Reported(before.id, 1, report(self.now)))
        self.step(Finished(before.id, 1))

    def step(self, event: Event) -> None:
        self.now += 1.0
        for action in self.scheduler.step(self.now, [event]):
            if isinstance(action, Start):
                self.scheduler.step(self.now, [Started(action.job.id, action.attempt)])

    def attempt(self, job: JobId) -> int:
        table = self.scheduler.state.table
        return int(table.get(table.row(job), TableColumns.ATTEMPT))


def stranger(name: str, tier: Tier = Tier.GUARANTEED) -> Job:
    return Job(JobId(name), launch=Launch(("python", f"{name}.py")), tier=tier)


def report(now: float) -> Report:
    """What a watcher and a driver tell of a job that waits for data for most of each step."""
    return Report(mem_gb=9.0, sm=0.2, steps=10.0 * now, step_s=0.1, data_s=0.07)


@pytest.mark.parametrize("policy", POLICIES)
def test_two_strangers_share_a_device_once_they_were_watched(policy: str) -> None:
    assert Cluster(policy, watched=True).run(300.0)


@pytest.mark.parametrize("policy", [*POLICIES, LUCID])
def test_they_share_from_the_start_where_their_programs_were_watched_before(policy: str) -> None:
    cluster = Cluster(policy, watched=True)
    for name in ("first", "second"):
        cluster.see_program(name)

    assert cluster.run(cluster.now + 60.0)


@pytest.mark.parametrize("policy", [*POLICIES, LUCID])
def test_nobody_is_put_beside_a_job_that_nobody_watched(policy: str) -> None:
    assert not Cluster(policy, watched=False).run(300.0)
