"""Virtual clusters of HiveD: whatever comes, guarantees hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.events.event import Decided, Failed, Finished
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Tier
from weft.core.model.trace import Trace, Truth
from weft.core.spec.registry import build
from weft.testing.check import check_run


@st.composite
def workloads(draw: st.DrawFn) -> Trace:
    rows, at = [], 0.0
    for i in range(draw(st.integers(3, 25))):
        at += draw(st.sampled_from((0.0, 5.0, 60.0)))
        tenant = draw(st.sampled_from(("a", "b", "guest")))
        loose = draw(st.booleans()) if tenant == "a" else False
        job = Job(
            JobId(f"j{i}"),
            at,
            Demand(draw(st.sampled_from((1, 2, 4)))),
            tenant=tenant,
            tier=Tier.OPPORTUNISTIC if loose else Tier.GUARANTEED,
        )
        rows.append((job, Truth(draw(st.sampled_from((10.0, 100.0, 1000.0))))))
    return Trace("drawn", tuple(rows))


@examples(30)
@given(trace=workloads(), inner=st.sampled_from(("fifo", "las:thresholds=100")))
def test_guaranteed_jobs_keep_to_their_cells_and_are_stopped_by_nobody_else(
    trace: Trace, inner: str
) -> None:
    policy = build("policy", f"hived:cells=a@node=1/a@gpu=2/b@node=1|{inner}")
    cluster = Cluster(parse_cluster("3x4:v100").nodes)

    log = check_run(policy, cluster, trace)

    jobs = {job.id: job for job, _ in trace}
    held: dict[JobId, Allocation] = {}
    for _, event in log:
        if isinstance(event, Decided):
            for name, on in event.changes.items():
                held.pop(name, None)
                if on is not None:
                    held[name] = on
            firm = [
                (jobs[n].tenant, on)
                for n, on in held.items()
                if jobs[n].tier is Tier.GUARANTEED and jobs[n].tenant != "guest"
            ]
            assert sum(on.gpus for tenant, on in firm if tenant == "a") <= 6
            assert (
                len({part.node for tenant, on in firm if tenant == "b" for part in on.slices}) <= 1
            )
            if inner == "fifo":
                stopped = [n for n, on in event.changes.items() if on is None]
                assert all(
                    jobs[n].tier is Tier.OPPORTUNISTIC or jobs[n].tenant == "guest" for n in stopped
                )
        else:
            held = {n: on for n, on in held.items() if n in jobs and n not in _ended(event)}


def _ended(event: object) -> set[JobId]:
    return {event.job} if isinstance(event, (Finished, Failed)) else set()
