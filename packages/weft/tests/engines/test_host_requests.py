"""What an attempt may use of its host, as values."""

from __future__ import annotations

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId, NodeId, Sharing, Slice
from weft.engines.machine.cores import CorePool
from weft.engines.machine.host_part import (
    HostRequest,
    Means,
    check_host,
    host_part,
    notices,
    read_asked,
)
from weft.wire.cgroups import CPU, MEMORY, limits_of

NODE = Node(NodeId("n"), "h200", 4, cpus=32.0, mem_gb=256.0)
BOTH = frozenset({CPU, MEMORY})


def on(gpus: int, cpus: float = 0.0, mem_gb: float = 0.0, share: float = 1.0) -> Allocation:
    part = Slice(NodeId("n"), tuple(range(gpus)), cpus, mem_gb)
    return Allocation((part,), Sharing(share=share))


@pytest.mark.parametrize(
    ("asked", "allocation", "cpus"),
    [
        (0.0, on(2), 16.0),  # nobody said anything: in proportion
        (0.0, on(1, share=0.5), 4.0),
        (3.0, on(2, 16.0, 128.0), 3.0),  # the job asked, the policy left it at proportion
        (3.0, on(2, 20.0, 100.0), 20.0),  # the policy decided
        (0.0, on(2, 20.0, 100.0), 20.0),
        (3.0, on(1, 4.0, 32.0, share=0.5), 3.0),
    ],
)
def test_cpus_are_the_policys_the_jobs_or_in_proportion(
    asked: float, allocation: Allocation, cpus: float
) -> None:
    assert host_part(HostRequest(asked), allocation, NODE).cpus == pytest.approx(cpus)


def test_memory_that_a_job_asks_for_is_a_limit_and_a_policys_is_taken_back_gently() -> None:
    part = host_part(HostRequest(mem_gb=12.0), on(1, 8.0, 100.0), NODE)

    assert (part.mem_gb, part.soft_gb) == (12.0, 100.0)
    assert limits_of(BOTH, part.cpus, part.mem_gb, part.soft_gb) == {
        "cpu.max": "800000 100000",
        "memory.high": "100000000000",
        "memory.max": "12000000000",
        "memory.oom.group": "1",
    }
    assert limits_of(frozenset(), part.cpus, part.mem_gb, part.soft_gb) == {}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (Job(JobId("a"), cpus=64.0), "cpus is 64; this machine has 32 CPU cores"),
        (Job(JobId("a"), mem_gb=1e6), "mem_gb is 1e.06; this machine has 256 GB"),
    ],
)
def test_more_than_the_machine_has_is_refused(job: Job, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_host(job, NODE)


def test_what_cannot_be_applied_is_said() -> None:
    half = host_part(HostRequest(0.5), on(1, 8.0, 64.0), NODE)
    given = host_part(HostRequest(), on(1, 6.0, 100.0), NODE)
    bare = Means(gpus=True)
    all_there = Means(cpu_controller=True, memory_controller=True, mps=True, gpus=True)

    assert [text for _, text in notices(half, 0.0, bare)] == [
        "0.5 CPUs are rounded up to 1: no CPU cgroup here"
    ]
    assert [text for _, text in notices(given, 10.0, bare)] == [
        "100 GB of memory are not enforced: no memory cgroup here",
        "10 GB of GPU memory bind torch, JAX and TensorFlow only: no MPS",
    ]
    assert notices(half, 10.0, all_there) == ()
    assert notices(host_part(read_asked(Job(JobId("a"))), on(1), NODE), 0.0, bare) == ()


def test_cores_are_those_of_the_devices_first_and_nobody_elses_while_there_are_free_ones() -> None:
    pool = CorePool(tuple(range(8)))

    assert pool.take("a", 2.0, near=(4, 5), ranks=1) == ((4, 5),)
    assert pool.take("b", 2.0, near=(4, 5), ranks=2) == ((0,), (1,))
    assert pool.take("c", 4.0, near=(6,), ranks=1) == ((2, 3, 6, 7),)
    assert pool.take("d", 1.0, near=(6,), ranks=1) == ((6,),)  # all are taken: near ones again
    pool.give("b")
    assert pool.take("e", 0.25, near=(), ranks=1) == ((0,),)
    assert pool.take("f", 0.25, near=(0,), ranks=1) == ((0,),)  # a quarter each
    assert pool.take("g", 99.0, near=(), ranks=1) == (tuple(range(8)),)
