"""Why jobs wait: each blocker in its own words, from what is true now."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest

from weft.core.events.event import Failed, Started, Submitted
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.model.launch import Launch
from weft.core.plan.about import About, Controls
from weft.core.plan.reasons import WORDS, Blocker, asks_for
from weft.core.scheduler import Scheduler
from weft.core.state.capacity import Capacity
from weft.policies.fifo import Fifo
from weft.runtime.deciding.waiting import WaitExplainer, why_waits
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.ledger import Ledger
from weft.stack.layers import Backoff

WHOLE = parse_cluster("2x4:a100+1x4:t4")


def waits(
    up: Cluster = WHOLE, *held: Allocation, about: About | None = None, **more: object
) -> WaitExplainer:
    free = Capacity(up)
    for on in held:
        free.take(on)
    policy = about or About("fifo", "of this test")
    return WaitExplainer(free, WHOLE.nodes, policy, "fifo", 100.0, **more)  # type: ignore[arg-type]


def job(gpus: int, *kinds: str, least: int = 0, share: float = 1.0) -> Job:
    return Job(JobId("j"), demand=Demand(gpus, least, 0, kinds, share))


def on(node: str, *gpus: int, cpus: float = 0.0) -> Allocation:
    return Allocation((Slice(NodeId(node), gpus, cpus),))


def test_every_blocker_has_words_and_they_need_no_more_than_they_say() -> None:
    for blocker in Blocker:
        assert [name for _, name, _, _ in string.Formatter().parse(WORDS[blocker]) if name]


def test_too_few_devices_are_free() -> None:
    full = on("a100-0", 0, 1, 2, 3), on("a100-1", 0, 1)

    why = waits(WHOLE, *full).explain_wait(job(4, "a100"))

    assert why.blocker is Blocker.GPUS
    assert why.text == "waits for 4 a100 GPUs; only 2 are free"


def test_the_nodes_that_could_run_it_are_drained() -> None:
    up = WHOLE.without(NodeId("a100-0")).without(NodeId("a100-1"))

    why = waits(up).explain_wait(job(1, "a100"))

    assert why.text == "waits for 1 a100 GPU; all 2 nodes that could run it are down"


def test_nodes_that_are_away_are_called_what_they_are() -> None:
    up = WHOLE.without(NodeId("a100-0")).without(NodeId("t4-2"))
    words = {NodeId("a100-0"): "drained", NodeId("t4-2"): "down"}

    drained = waits(up, words=words).explain_wait(job(8, "a100"))
    both = waits(Cluster(()), words={**words, NodeId("a100-1"): "down"}).explain_wait(job(1))

    assert drained.text == ("waits for 8 a100 GPUs; 1 of 2 nodes that could run it is drained")
    assert both.text == "waits for 1 GPU; all 3 nodes that could run it are down or drained"


def test_the_host_is_taken_where_devices_are_free() -> None:
    greedy = [on(node.id, 0, cpus=node.cpus) for node in WHOLE.nodes]

    why = waits(WHOLE, *greedy).explain_wait(job(2))

    assert why.blocker is Blocker.CPUS
    assert why.text.startswith("waits for 2 GPUs with 16 CPUs; GPUs are free, but the CPUs")


def test_host_memory_has_words_of_its_own() -> None:
    greedy = [Allocation((Slice(node.id, (0,), 0.0, node.mem_gb),)) for node in WHOLE.nodes]

    why = waits(WHOLE, *greedy).explain_wait(job(1))

    assert why.blocker is Blocker.MEMORY
    assert "64 GB of host memory" in why.text


def test_a_part_of_a_gpu_whose_host_is_taken_is_not_said_to_be_free() -> None:
    half = Sharing(0.5)
    greedy = [Allocation((Slice(node.id, (0, 1, 2, 3), node.cpus),), half) for node in WHOLE.nodes]

    assert waits(WHOLE, *greedy).explain_wait(job(1, share=0.5)).blocker is Blocker.CPUS


def test_a_safe_order_that_stands_in_is_named() -> None:
    why = waits(failing="policy 'x' failed: a bug").explain_wait(job(1))

    assert why.blocker is Blocker.FALLBACK
    assert "the fallback order keeps it back (policy 'x' failed: a bug)" in why.text


def test_it_fits_and_the_policy_decides_at_its_next_round() -> None:
    every = About("sia", "of this test", every=60.0)

    why = waits(about=every, wake_at=120.0).explain_wait(job(2))

    assert why.text == "waits for the next decision, in 20 s; 2 GPUs are free for it"


def test_it_fits_and_the_policy_is_asked_again_in_a_moment() -> None:
    why = waits(wake_at=101.0).explain_wait(job(2))

    assert why.text == "waits for the next decision, in 1 s; 2 GPUs are free for it"


def test_it_fits_and_the_policy_keeps_it_back() -> None:
    two, half = waits().explain_wait(job(2)), waits().explain_wait(job(1, share=0.5))

    news = "looked at again when something changes"
    none = "but policy 'fifo' has not given"
    assert two.text == f"waits its turn; 2 GPUs are free for it, {none} them out yet; {news}"
    assert half.text == f"waits its turn; 0.5 of a GPU is free for it, {none} it out yet; {news}"


def test_it_fits_and_the_policy_says_why_it_leaves_devices_idle() -> None:
    why = waits(idles="a job that does not fit keeps those behind it waiting", wake_at=140.0)

    assert why.explain_wait(job(2)).text == (
        "waits its turn; 2 GPUs are free for it, but under policy 'fifo' a job that does not "
        "fit keeps those behind it waiting; looked at again in 40 s"
    )


def test_elastic_jobs_wait_for_the_least_they_take_where_a_policy_sizes_them() -> None:
    sizing = About("sia", "of this test", controls=Controls.COUNT)
    full = on("a100-0", 0, 1, 2, 3), on("a100-1", 0, 1, 2), on("t4-2", 0, 1, 2)
    elastic = job(2, least=1)

    assert waits(WHOLE, *full).explain_wait(elastic).blocker is Blocker.GPUS
    assert waits(WHOLE, *full, about=sizing).explain_wait(elastic).blocker is Blocker.TURN


def test_what_the_decision_said_comes_first_and_nobody_to_decide_next() -> None:
    here = waits(trouble="policy 'x' failed: a bug")

    reason = here.explain_wait(job(1), "over quota: ...", Blocker.QUOTA)

    assert (reason.text, reason.blocker) == ("over quota: ...", Blocker.QUOTA)
    assert here.explain_wait(job(1)).text == "nothing is decided: policy 'x' failed: a bug"


def test_a_job_that_failed_is_told_when_it_is_tried_again_and_then_what_it_waits_for() -> None:
    scheduler, ledger = Scheduler(Backoff(Fifo()), WHOLE), Ledger()
    failing = Job(JobId("j"), launch=Launch(("x",), backoff_s=30.0))
    for at, event in (
        (0.0, Submitted(failing)),
        (1.0, Started(JobId("j"), 1)),
        (90.0, Failed(JobId("j"), 1, "exit code 1", retry=True)),
    ):
        scheduler.step(at, [event])
        ledger.fold(at, event)
    record: JobRecord = ledger.jobs[JobId("j")]

    soon, later = (why_waits(_at(now), scheduler, record) for now in (100.0, 200.0))

    assert soon is not None
    assert later is not None
    assert soon.blocker is Blocker.FAILED
    assert soon.text.endswith("tried again in 20 s")
    assert later.blocker is Blocker.TURN


def _at(now: float) -> WaitExplainer:
    return WaitExplainer(Capacity(WHOLE), WHOLE.nodes, About("fifo", "of this test"), "fifo", now)


def test_what_is_asked_for_reads_well() -> None:
    assert [asks_for(1), asks_for(4, ("a100",)), asks_for(1, (), 0.5)] == [
        "1 GPU",
        "4 a100 GPUs",
        "0.5 of a GPU",
    ]


def test_enough_devices_are_free_but_not_on_as_many_nodes() -> None:
    gang = Job(JobId("j"), demand=Demand(4, kinds=("a100",), nodes=2))
    some = on("a100-0", 0), on("a100-1", 0, 1, 2)

    why = waits(WHOLE, *some).explain_wait(gang)

    assert why.blocker is Blocker.NODES
    assert why.text == "waits for 4 a100 GPUs on 2 nodes; only 1 node has 2 free"


def test_a_gang_waits_for_a_node_that_is_away() -> None:
    gang = Job(JobId("j"), demand=Demand(4, kinds=("a100",), nodes=2))
    up = WHOLE.without(NodeId("a100-1"))

    why = waits(up, words={NodeId("a100-1"): "drained"}).explain_wait(gang)

    assert why.text == (
        "waits for 4 a100 GPUs on 2 nodes; 1 of 2 nodes that could run it is drained"
    )


def test_machines_are_looked_at_once_for_tenants_that_ask_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Allocation] = []
    real = Capacity.fits

    def count(free: Capacity, allocation: Allocation) -> bool:
        looked.append(allocation)
        return real(free, allocation)

    monkeypatch.setattr(Capacity, "fits", count)
    now = waits(WHOLE)

    why = [now.explain_wait(replace(job(4), tenant=f"t{number}")) for number in range(50)]

    assert {each.blocker for each in why} == {Blocker.TURN}
    assert len(looked) == len(WHOLE.nodes) - 1  # of a kind that has enough


def test_an_owner_is_told_that_its_gpus_are_lent_to_jobs_that_may_not_be_stopped() -> None:
    def reason(firm: int, borrowed: int, mine: int = 0, gpus: int = 2) -> str:
        scheduler = Scheduler(Fifo(), parse_cluster("1x8:a100"))
        holders = [("guest", False, firm), ("guest", True, borrowed), ("host", True, mine)]
        jobs = [
            Job(JobId(str(n)), demand=Demand(gpus=held), tenant=who, preemptible=preemptible)
            for n, (who, preemptible, held) in enumerate(holders)
            if held
        ]
        scheduler.step(0.0, [*map(Submitted, jobs)])
        now = replace(
            waits(WHOLE),
            nodes=scheduler.state.cluster.nodes,
            free=scheduler.state.free,
            table=scheduler.state.table,
            own={"host": 4.0, "guest": 2.0},
        )
        return now.explain_wait(replace(job(gpus, "a100"), tenant="host")).text.partition("them; ")[
            2
        ]

    lent = "lent to jobs that may not be stopped, until these end"
    assert reason(firm=8, borrowed=0) == f"its tenant's own 4 GPUs are {lent}"
    assert reason(firm=6, borrowed=2) == f"its tenant's own 4 GPUs are {lent}"
    assert reason(firm=3, borrowed=3, mine=2) == f"2 of its tenant's own 4 GPUs are {lent}"
    assert reason(firm=1, borrowed=6, mine=1) == f"1 of its tenant's own 4 GPUs is {lent}"
    assert reason(firm=0, borrowed=8) == ""  # these give way
    assert reason(firm=6, borrowed=0, mine=2, gpus=4) == ""  # it asks for more than is owned
