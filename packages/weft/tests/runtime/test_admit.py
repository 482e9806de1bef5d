"""What may enter: jobs that can run on the cluster there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Failed, Saved, Started, StartFailed, Stopped, Submitted
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.runtime.loop.admit import AGENTS_LOST, STARTS_LOST, check_job, judge_failure
from weft.runtime.records.job_records import LASTED_S
from weft.runtime.records.ledger import Ledger

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


def test_a_machine_without_gpus_is_spoken_of_as_cpu_slots() -> None:
    with pytest.raises(InvalidConfig, match="asks for 9 CPU slots; there are 4"):
        check_job(Job(JobId("j"), demand=Demand(9)), TWO_CORES)
    with pytest.raises(InvalidConfig, match="runs on a100 only") as refused:
        check_job(Job(JobId("j"), demand=Demand(1, kinds=("a100",))), TWO_CORES)
    assert refused.value.hint == "there are CPU slots of kind cpu"
    with pytest.raises(InvalidConfig, match="the nodes for its 1 CPU slot have 2 CPUs"):
        check_job(Job(JobId("j"), cpus=99.0), TWO_CORES)


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


# ---- failures

A = JobId("a")
ON = Allocation((Slice(NodeId("n"), (0,)),))


def lose_agents(ledger: Ledger, first: int, count: int) -> list[bool]:
    """Whether the job is tried again after each of so many agents died."""
    tried = []
    for attempt in range(first, first + count):
        ledger.fold(0.0, Decided(attempt, {A: ON}))
        ledger.fold(0.0, Started(A, attempt))
        died = Failed(A, attempt, "its agent died", lost=True, agent_died=True)
        judged = judge_failure(died, ledger.jobs[A])
        ledger.fold(0.0, judged)
        tried.append(judged.retry)
        if not judged.retry:
            break
    return tried


def preempt(ledger: Ledger, attempt: int, after_s: float) -> None:
    """Start the job once more and stop it in good order."""
    ledger.fold(0.0, Decided(attempt, {A: ON}))
    ledger.fold(0.0, Started(A, attempt))
    ledger.fold(0.0, Decided(attempt, {A: None}))
    ledger.fold(after_s, Stopped(A, attempt))


def submitted(retries: int) -> Ledger:
    ledger = Ledger()
    ledger.fold(0.0, Submitted(Job(A, launch=Launch(("x",), retries=retries))))
    return ledger


def test_a_job_that_loses_one_agent_after_the_other_has_failed_after_a_while() -> None:
    ledger = submitted(retries=2)

    tried = lose_agents(ledger, 1, 100)

    assert tried == [True] * (AGENTS_LOST + 2) + [False]
    assert ledger.jobs[A].outcome == "failed"
    assert "counts as its own failure" in ledger.jobs[A].reason


def test_agents_that_died_now_and_then_do_not_count() -> None:
    ledger = submitted(retries=0)

    for round_ in range(3):
        first = 1 + round_ * AGENTS_LOST
        assert lose_agents(ledger, first, AGENTS_LOST) == [True] * AGENTS_LOST
        ledger.fold(0.0, Saved(A, first, 10 * (round_ + 1)))

    assert ledger.jobs[A].agents_lost == 0
    lose_agents(ledger, 3 * AGENTS_LOST + 1, 2)
    preempt(ledger, 3 * AGENTS_LOST + 3, LASTED_S)
    assert ledger.jobs[A].agents_lost == 0


def test_being_preempted_soon_after_each_start_excuses_nobody() -> None:
    ledger = submitted(retries=0)

    lose_agents(ledger, 1, AGENTS_LOST)
    preempt(ledger, AGENTS_LOST + 1, LASTED_S / 2)

    assert lose_agents(ledger, AGENTS_LOST + 2, 1) == [False]
    assert ledger.jobs[A].outcome == "failed"


def test_a_job_whose_starts_are_lost_one_after_the_other_is_not_tried_for_ever() -> None:
    ledger = submitted(retries=0)
    tried = []
    for attempt in range(1, STARTS_LOST + 2):
        lost = StartFailed(A, attempt, "its batch script failed", lost=True)
        judged = judge_failure(lost, ledger.jobs[A])
        ledger.fold(0.0, judged)
        tried.append(judged.retry)

    assert tried == [True] * STARTS_LOST + [False]
    assert ledger.jobs[A].reason.startswith("its batch script failed; so did 10 before it")


def fail(ledger: Ledger, ran_s: list[float], code: int = 1) -> list[bool]:
    """Whether the job is tried again after each of its attempts failed, which ran for so long."""
    tried, now = [], 0.0
    for attempt, ran in enumerate(ran_s, 1):
        ledger.fold(now, Decided(attempt, {A: ON}))
        ledger.fold(now, Started(A, attempt))
        now += ran
        judged = judge_failure(Failed(A, attempt, "exited", code=code), ledger.jobs[A])
        ledger.fold(now, judged)
        tried.append(judged.retry)
    return tried


def test_a_job_that_fails_early_in_the_same_way_three_times_is_not_tried_again() -> None:
    ledger = submitted(retries=9)

    assert fail(ledger, [5.0, 7.0, 5.0]) == [True, True, False]
    assert ledger.jobs[A].reason == (
        "exited; 3 attempts in a row failed early with exit code 1, so it is not tried again"
    )


def test_failures_that_came_late_are_tried_again_as_often_as_asked() -> None:
    assert fail(submitted(retries=4), [3600.0] * 5) == [True] * 4 + [False]
    assert fail(submitted(retries=4), [5.0, 3600.0, 5.0, 5.0]) == [True] * 4


def test_who_names_the_exit_codes_to_retry_is_believed() -> None:
    ledger = Ledger()
    ledger.fold(0.0, Submitted(Job(A, launch=Launch(("x",), retries=4, retry_on=(75,)))))

    assert fail(ledger, [5.0] * 5, code=75) == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("code", "words"),
    [(126, "command cannot be run"), (127, "command or environment is not found")],
)
def test_a_command_that_is_not_there_is_not_tried_again(code: int, words: str) -> None:
    failed = Failed(A, 1, f"rank 0 ended with exit code {code}", code=code)

    judged = judge_failure(failed, submitted(retries=3).jobs[A])

    assert not judged.retry
    assert judged.reason.startswith(f"its {words}, so it is not tried again: rank 0 ended")
    assert judge_failure(replace(failed, code=1), submitted(retries=3).jobs[A]).retry
    wished = Job(A, launch=Launch(("x",), retries=3, retry_on=(code,)))
    ledger = Ledger()
    ledger.fold(0.0, Submitted(wished))
    assert judge_failure(failed, ledger.jobs[A]).retry


def test_what_was_lost_otherwise_is_always_tried_again() -> None:
    ledger = submitted(retries=0)
    lose_agents(ledger, 1, AGENTS_LOST)

    gone = Failed(A, 9, "lost while the service was away", lost=True)

    assert judge_failure(gone, ledger.jobs[A]).retry


@pytest.mark.parametrize(
    ("gpus", "nodes", "message"),
    [
        (12, 2, "2 nodes with 6 GPUs each; there is 1 of one kind with that many"),
        (4, 4, "4 nodes with 1 GPU each; there are 2 of one kind with that many"),
        (12, 1, "1 node with 12 GPUs; there are 0 of one kind with that many"),
    ],
)
def test_a_gang_on_more_or_larger_nodes_than_there_are_is_refused(
    gpus: int, nodes: int, message: str
) -> None:
    cluster = parse_cluster("2x4:v100+1x8:a100+1x4:a100")

    with pytest.raises(InvalidConfig, match=message):
        check_job(Job(JobId("j"), demand=Demand(gpus, nodes=nodes)), cluster)

    check_job(Job(JobId("j"), demand=Demand(8, nodes=2)), cluster)
