"""Every policy can decide about some of the jobs, beside what another policy holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import weft
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.spec.registry import build, names
from weft.policies.fifo import Fifo
from weft.policy import decide_among


@dataclass(frozen=True, slots=True)
class Halves:
    """Every second job is the business of one policy, the others of another."""

    one: Policy
    other: Policy

    @property
    def about(self) -> About:
        return replace(self.one.about, every=None, starves="the other half")

    def decide(self, view: View) -> Plan:
        memory = view.memory if isinstance(view.memory, tuple) else (None, None)
        odd = view.table.seq % 2 == 1
        plans = []
        for keep, policy, kept in ((~odd, self.one, memory[0]), (odd, self.other, memory[1])):
            plan = decide_among(policy, replace(view.restrict(keep), memory=kept))
            view.carry_out(plan.changes)
            plans.append(plan)
        wakes = [plan.wake_at for plan in plans if plan.wake_at is not None]
        return Plan(
            {job: on for plan in plans for job, on in plan.changes.items()},
            wake_at=min(wakes, default=view.now + 60.0),
            memory=tuple(plan.memory for plan in plans),
        )


@pytest.mark.parametrize("name", names("policy"))
def test_a_policy_decides_about_half_of_the_jobs(name: str) -> None:
    policy = Halves(build("policy", name), Fifo())

    result = weft.simulate("tiny-20", policy, "2x4:v100+1x4:t4")

    (outcome,) = result["policies"].values()
    assert outcome["finished"] == 20
