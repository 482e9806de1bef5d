"""Who shares devices with whom, and what that does to progress."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from weft.core.events.report import Report
from weft.core.knowledge.profile import Profile
from weft.core.model import job as model
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Resident
from weft.perf.replay import Replay
from weft.perf.sharing.colocation import Colocated
from weft.sim.physics import END, ChangeTerms, Neighbours, Physics

SEQ = np.arange(3.0)


def on(
    *gpus: int, share: float = 0.5, discipline: model.Discipline = model.Discipline.NONE
) -> model.Allocation:
    return model.Allocation(
        (model.Slice(model.NodeId("n"), gpus),), model.Sharing(share=share, discipline=discipline)
    )


class Counting:
    """Half speed for each neighbour; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def speed(self, resident: Resident, beside: Sequence[Resident]) -> float:
        self.asked.append(resident.job.id)
        return 0.5 ** len(beside)


def jobs(*lengths: float, gpus: int = 1) -> Trace:
    return Trace(
        "t",
        tuple(
            (model.Job(model.JobId(f"j{i}"), demand=model.Demand(gpus)), Truth(s))
            for i, s in enumerate(lengths)
        ),
    )


def world(coupling: Counting | Colocated, *lengths: float) -> Physics:
    return Physics(jobs(*lengths), Replay(0.0), coupling=coupling)


def start(physics: Physics, now: float, seq: int, held: model.Allocation) -> None:
    physics.start(now, physics.trace.jobs[seq][0], held, "v100")


def test_a_neighbour_slows_from_the_moment_it_comes_until_it_leaves() -> None:
    physics = world(Counting(), 100.0, 20.0)
    start(physics, 0.0, 0, on(0))
    assert physics.changed_milestones(0.0) == []
    start(physics, 10.0, 1, on(0))

    changed = dict(physics.changed_milestones(10.0))

    assert changed[0].at == pytest.approx(10.0 + 90.0 / 0.5)
    assert changed[1].at == pytest.approx(10.0 + 20.0 / 0.5)
    assert changed[1].report == Report(pace=0.5)
    physics.finish(50.0, 1)
    (again,) = physics.changed_milestones(50.0)
    assert again[0] == 0
    assert again[1].at == pytest.approx(50.0 + 70.0)
    assert again[1].what == END


def test_only_neighbours_are_asked_again() -> None:
    counting = Counting()
    physics = world(counting, 100.0, 100.0, 100.0)
    start(physics, 0.0, 0, on(0))
    start(physics, 0.0, 1, on(1))
    physics.changed_milestones(0.0)
    counting.asked.clear()

    start(physics, 5.0, 2, on(1))
    physics.changed_milestones(5.0)

    assert sorted(counting.asked) == ["j1", "j2"]


def test_a_gang_is_beside_everybody_on_any_of_its_devices() -> None:
    neighbours = Neighbours(Counting())
    for seq, held in enumerate((on(0, 1), on(0), on(1))):
        neighbours.enter(seq, Resident(model.Job(model.JobId(f"j{seq}")), held, "v100"))

    assert [r.job.id for r in neighbours.residents_beside(0)] == ["j1", "j2"]
    assert [r.job.id for r in neighbours.residents_beside(1)] == ["j0"]


def test_other_terms_take_effect_where_the_job_is() -> None:
    physics = world(Colocated(lambda _: Profile()), 100.0, 100.0)
    start(physics, 0.0, 0, on(0, discipline=model.Discipline.TIMESLICE))
    start(physics, 0.0, 1, on(0, discipline=model.Discipline.TIMESLICE))
    physics.changed_milestones(0.0)

    physics.adjust(10.0, 0, on(0, share=0.25, discipline=model.Discipline.TIMESLICE), "v100")
    physics.adjust(10.0, 1, on(0, share=0.75, discipline=model.Discipline.TIMESLICE), "v100")
    physics.changed_milestones(10.0)
    fast, slow = 60.0 / 60.5 * np.array([0.75, 0.25])

    assert physics.remaining(SEQ[:2], 20.0) == pytest.approx(
        100.0 - 10.0 * 0.5 * 60.0 / 60.5 - 10.0 * np.array([slow, fast])
    )
    assert physics.gpu_s[0] == pytest.approx(5.0)


def test_an_event_may_cost_everybody_a_pause() -> None:
    physics = Physics(
        jobs(100.0, 100.0),
        Replay(0.0),
        terms=ChangeTerms(interruption=lambda job, _: 3.0 if job.id == "j0" else 30.0),
    )
    start(physics, 0.0, 0, on(0, share=1.0))
    start(physics, 0.0, 1, on(1, share=1.0))

    physics.interrupt(10.0)

    assert physics.remaining(SEQ[:2], 10.0).tolist() == [93.0, 100.0]


# ---- disciplines


def resident(name: str, held: model.Allocation, **hints: float) -> Resident:
    return Resident(model.Job(model.JobId(name), hints=hints), held, "v100")


def test_a_job_recorded_on_part_of_a_device_keeps_its_record() -> None:
    part = model.Job(model.JobId("a"), demand=model.Demand(1, share=0.5))
    other = resident("b", on(0))

    assert Colocated(lambda _: Profile()).speed(Resident(part, on(0), "v100"), [other]) == 1.0


def test_opportunistic_jobs_get_what_guaranteed_ones_leave() -> None:
    profiles = {"firm": Profile(gpu_use=0.75), "loose": Profile(gpu_use=0.5)}
    colocated = Colocated(lambda job: profiles[job.id])
    paced = model.Sharing(0.0, model.Tier.OPPORTUNISTIC, discipline=model.Discipline.PACED)
    firm = resident("firm", on(0, share=1.0, discipline=model.Discipline.PACED))
    loose = resident("loose", model.Allocation((model.Slice(model.NodeId("n"), (0,)),), paced))

    assert colocated.speed(firm, [loose]) >= 0.95
    assert colocated.speed(loose, [firm]) <= 0.5
