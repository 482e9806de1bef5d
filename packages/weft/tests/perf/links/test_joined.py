"""What links do to speeds, and who must be asked again when somebody comes or goes."""

from __future__ import annotations

import pytest

import weft
from weft.core.knowledge.traffic import Traffic
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Resident
from weft.perf.links.joined import JoinedLinks
from weft.perf.replay import Replay
from weft.sim.physics import Physics

HALF = Traffic(iteration_s=1.0, share=0.5, gbit=20.0)  # 2.5 GB: half a second at 5 GB/s
RACKS = parse_cluster("4x8:v100@dgx-1v/nic=40/rack=2:40")


def held(*parts: tuple[str, tuple[int, ...]], share: float = 1.0) -> Allocation:
    return Allocation(tuple(Slice(NodeId(n), gpus) for n, gpus in parts), Sharing(share=share))


def resident(on: Allocation, traffic: Traffic | None = HALF, name: str = "a") -> Resident:
    return Resident(Job(JobId(name), demand=Demand(on.gpus), traffic=traffic), on, "v100")


def test_a_ring_over_pcie_is_slower_than_one_over_nvlink() -> None:
    joined = JoinedLinks(RACKS)
    inside = Traffic(iteration_s=1.0, share=0.5, gbit=0.5 * 8 * 58.925036)

    near = joined.speed(resident(held(("v100-0", (0, 3))), inside), ())
    far = joined.speed(resident(held(("v100-0", (0, 5))), inside), ())

    assert near == pytest.approx(1.0)
    assert far == pytest.approx(1.0 / (0.5 + 0.5 * 58.925036 / 10.370793))


def test_a_link_is_shared_by_the_jobs_that_cross_it_while_they_send() -> None:
    joined = JoinedLinks(RACKS)
    crossing = resident(held(("v100-0", (0,)), ("v100-2", (0,))))
    other = resident(held(("v100-1", (0,)), ("v100-3", (0,))), name="b")  # the same racks' uplinks
    inside = resident(held(("v100-0", (1,)), ("v100-1", (1,))), name="c")  # the same card

    assert joined.speed(crossing, ()) == pytest.approx(1.0)
    assert joined.speed(crossing, (other,)) == pytest.approx(1.0 / (0.5 + 0.5 * 1.5))
    assert joined.speed(crossing, (other, inside)) == pytest.approx(1.0 / (0.5 + 0.5 * 1.5))
    assert joined.speed(other, (inside,)) == pytest.approx(1.0 / (0.5 + 0.5 * 1.5))


@pytest.mark.parametrize(
    ("cluster", "on", "traffic"),
    [
        (RACKS, held(("v100-0", (0, 5))), None),
        (RACKS, held(("v100-0", (0,))), HALF),
        (RACKS, held(("v100-0", (0, 5))), Traffic(1.0, 0.5, 20.0, sensitive=False)),
        (parse_cluster("4x8:v100"), held(("v100-0", (0,)), ("v100-1", (0,))), HALF),
    ],
)
def test_links_that_nobody_knows_or_minds_change_nothing(
    cluster: Cluster, on: Allocation, traffic: Traffic | None
) -> None:
    assert JoinedLinks(cluster).speed(resident(on, traffic), ()) == 1.0


def test_without_a_truth_about_devices_a_claim_gives_its_part() -> None:
    on = held(("v100-0", (0,)), share=0.25)

    assert JoinedLinks(RACKS).speed(resident(on), ()) == 0.25


def test_a_job_goes_faster_once_the_other_left_the_link() -> None:
    jobs = [Job(JobId(n), demand=Demand(2), traffic=HALF) for n in ("a", "b")]
    trace = Trace("t", tuple((job, Truth(100.0)) for job in jobs))
    joined = JoinedLinks(RACKS)
    physics = Physics(trace, Replay(0.0), coupling=joined, places=joined.meeting_places)
    first, second = (held((f"v100-{i}", (0,)), (f"v100-{i + 2}", (0,))) for i in (0, 1))

    physics.start(0.0, jobs[0], first, "v100")
    assert list(physics.changed_milestones(0.0)) == []
    physics.start(10.0, jobs[1], second, "v100")
    slowed = dict(physics.changed_milestones(10.0))
    physics.end_run(60.0, 1)
    (again,) = physics.changed_milestones(60.0)

    assert slowed[0].at == pytest.approx(10.0 + 90.0 * 1.25)
    assert slowed[1].at == pytest.approx(10.0 + 100.0 * 1.25)
    assert again[0] == 0
    assert again[1].at == pytest.approx(60.0 + 90.0 - 50.0 / 1.25)


def test_a_simulation_of_a_joined_cluster_is_slower_where_gangs_are_far_apart() -> None:
    jobs = tuple(
        (Job(JobId(f"j{i}"), float(i), Demand(8), traffic=HALF), Truth(100.0)) for i in range(4)
    )
    trace = Trace("t", jobs)

    plain = weft.simulate(trace, "fifo", "4x4:v100").outcomes["fifo"][0].metrics["makespan_h"]
    wide = weft.simulate(trace, "fifo", "4x4:v100/nic=40").outcomes["fifo"][0].metrics["makespan_h"]
    narrow = (
        weft.simulate(trace, "fifo", "4x4:v100/nic=10").outcomes["fifo"][0].metrics["makespan_h"]
    )

    assert plain == wide
    assert narrow == pytest.approx(plain * (0.5 + 0.5 * 4), rel=0.02)
