"""What may enter: jobs that can run on the cluster there is."""

from __future__ import annotations

import pytest

from weft.core.cluster import Cluster, Node, parse_cluster
from weft.core.errors import InvalidConfig
from weft.core.model import Demand, Job, JobId, NodeId
from weft.runtime.admit import check_job

TWO_CORES = Cluster((Node(NodeId("here"), "cpu", 4, cpus=2.0, mem_gb=8.0),))


@pytest.mark.parametrize(
    ("job", "field", "most"),
    [
        (Job(JobId("j"), cpus=99.0), "cpus", "2"),
        (Job(JobId("j"), mem_gb=9999.0), "mem_gb", "8"),
        (Job(JobId("j"), demand=Demand(4), cpus=2.5), "cpus", "2"),
    ],
)
def test_more_of_the_host_than_any_node_has_is_refused(job: Job, field: str, most: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{field} is") as refused:
        check_job(job, TWO_CORES)

    assert f"ask for at most {most}," in refused.value.hint


def test_a_gang_may_ask_for_the_hosts_of_as_many_nodes_as_it_has_gpus() -> None:
    cluster = parse_cluster("4x8:v100")  # 64 cores each

    check_job(Job(JobId("j"), demand=Demand(2), cpus=128.0), cluster)

    with pytest.raises(InvalidConfig, match="cpus"):
        check_job(Job(JobId("j"), demand=Demand(2), cpus=129.0), cluster)


def test_only_the_kinds_a_job_takes_count() -> None:
    small, large = Node(NodeId("s"), "t4", 4, 4.0), Node(NodeId("l"), "a100", 4, 64.0)
    cluster = Cluster((small, large))

    check_job(Job(JobId("j"), cpus=64.0), cluster)

    with pytest.raises(InvalidConfig, match="cpus"):
        check_job(Job(JobId("j"), demand=Demand(1, kinds=("t4",)), cpus=5.0), cluster)


def test_nodes_that_do_not_tell_their_host_refuse_nobody() -> None:
    check_job(Job(JobId("j"), cpus=64.0), Cluster((Node(NodeId("n"), "a100", 1),)))
