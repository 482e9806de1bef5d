"""Layered step times, exact and as ratios."""

from __future__ import annotations

from math import inf

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.formulas.training.tasks import Task, Tasks, tasks_of, utility_of
from weft.perf.training.layered import (
    ModelLayer,
    Network,
    all_reduce_s,
    compute_exposed_s,
    network_of,
    overlap,
    place_apart,
    place_together,
    ratio_form,
    speed,
    step_s,
)

# 125 MB over 1 Gb/s take a second one way.
LAYERS = (ModelLayer(0.01, 1.0, 125.0), ModelLayer(0.02, 2.0, 125.0), ModelLayer(0.03, 3.0, 125.0))
NETWORK = Network(LAYERS, 1.0)
TASKS = Tasks(Task(1.0, 2.0), Task(0.0, 3.0), 2, 8, 12800.0, 128.0)


def test_transfers_overlap_with_the_backward_pass_of_earlier_layers() -> None:
    # Layer 3 is computed at 3 and sent until 5; layer 2 is computed at 5 and sent until 7;
    # layer 1 is computed at 6, waits for the channel, and is there at 9.
    assert compute_exposed_s(LAYERS, [2.0, 2.0, 2.0]) == 9.0


def test_nothing_to_send_leaves_the_backward_pass() -> None:
    assert compute_exposed_s(LAYERS, [0.0, 0.0, 0.0]) == 6.0


def test_a_step_is_forward_then_what_is_exposed() -> None:
    # One worker and one server apart: each layer is pushed and pulled in 2 s.
    assert step_s(NETWORK, 10.0, place_apart(1, 1)) == pytest.approx(10 * 0.06 + 9.0)


def test_more_servers_share_a_layer_and_more_workers_share_a_server() -> None:
    assert step_s(NETWORK, 0.0, place_apart(1, 2)) == pytest.approx(7.0)
    assert step_s(NETWORK, 0.0, place_apart(2, 1)) == pytest.approx(3.0 + 3 * 4.0)


def test_a_worker_beside_a_server_needs_no_network() -> None:
    assert step_s(NETWORK, 0.0, ((2, 2),)) == pytest.approx(6.0)
    # Two nodes with a worker and a server each: every server serves one worker from afar.
    assert step_s(NETWORK, 0.0, ((1, 1), (1, 1))) == pytest.approx(
        step_s(NETWORK, 0.0, place_apart(1, 2))
    )


def test_an_even_split_is_never_slower_than_an_uneven_one_on_as_many_nodes() -> None:
    slow = step_s(NETWORK, 0.0, ((3, 1), (1, 3)))

    assert step_s(NETWORK, 0.0, ((2, 2), (2, 2))) <= slow


def test_updates_take_time_also_for_local_workers() -> None:
    busy = Network(LAYERS, 1.0, update_s=0.01)

    assert step_s(busy, 0.0, ((1, 1),)) == pytest.approx(compute_exposed_s(LAYERS, [1.25] * 3))


def test_tasks_without_a_server_or_worker_never_end() -> None:
    assert step_s(NETWORK, 1.0, ((2, 0),)) == inf
    assert speed(NETWORK, TASKS, ((2, 0),)) == 0.0


def test_synchronous_workers_share_a_batch_and_others_do_not() -> None:
    split = place_apart(4, 4)

    assert speed(NETWORK, TASKS, split) == pytest.approx(1.0 / step_s(NETWORK, 32.0, split))
    loose = Tasks(Task(1.0, 2.0), Task(0.0, 3.0), 2, 8, 12800.0, 32.0, sync=False)
    assert speed(NETWORK, loose, split) == pytest.approx(4.0 / step_s(NETWORK, 32.0, split))


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 3), (8, 4)])
def test_the_ratio_form_is_exact_where_it_was_measured(workers: int, servers: int) -> None:
    at = place_apart(workers, servers)

    form = ratio_form(NETWORK, TASKS, at)

    exact = TASKS.steps * step_s(NETWORK, TASKS.batch / workers, at)
    assert form.at(workers, servers) == pytest.approx(exact)
    assert 0.0 <= overlap(NETWORK, at) < 1.0


def test_dealing_tasks_evenly() -> None:
    assert place_together(4, 6, 2) == ((2, 3), (2, 3))
    assert place_together(5, 2, 2) == ((2, 1), (2, 1), (1, 0))


def test_buckets_overlap_with_the_backward_pass() -> None:
    # One bucket a layer: each takes 2 * 1/2 * 1 s between two workers.
    assert all_reduce_s(NETWORK, 0.0, 2, bucket_mb=100.0) == pytest.approx(7.0)
    # All in one bucket, nothing overlaps.
    assert all_reduce_s(NETWORK, 0.0, 2, bucket_mb=1e9) == pytest.approx(9.0)
    assert all_reduce_s(NETWORK, 10.0, 1) == pytest.approx(6.6)


def test_latency_counts_for_each_bucket() -> None:
    small = all_reduce_s(NETWORK, 0.0, 2, bucket_mb=1.0, latency_s=1.0)
    large = all_reduce_s(NETWORK, 0.0, 2, bucket_mb=200.0, latency_s=1.0)

    assert small == pytest.approx(9.0)
    assert large == pytest.approx(10.0)


def test_an_allocation_holds_the_servers_that_its_hosts_have_room_for() -> None:
    on = Allocation((Slice(NodeId("a"), (0, 1), 10.0, 64.0), Slice(NodeId("b"), (0,), 5.0, 32.0)))

    assert TASKS.split(on) == ((2, 2), (1, 1))


def test_hints_tell_tasks_layers_and_worth() -> None:
    hints = {"server_cpus": 3.0, "samples": 100.0, "batch": 10.0, "servers": 2.0, "sync": 0.0}
    hints |= {"layer0_mb": 5.0, "layer0_backward_s": 0.1, "server_gbps": 2.0, "worth": 4.0}
    job = Job(JobId("a"), demand=Demand(4), hints=hints)

    tasks, network, utility = tasks_of(job), network_of(job), utility_of(job)

    assert tasks is not None
    assert (tasks.steps, tasks.sync, tasks.servers, tasks.most_servers) == (10.0, False, 2, 8)
    assert network == Network((ModelLayer(0.0, 0.1, 5.0),), 2.0)
    assert utility is not None
    assert utility.at(1e9) == pytest.approx(2.0)
    plain = Job(JobId("b"))
    assert tasks_of(plain) is None
    assert network_of(plain) is None
    assert utility_of(plain) is None


@pytest.mark.parametrize("wrong", [{"batch": 0.0}, {"servers": 0.0}, {"server_cpus": -1.0}])
def test_tasks_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    hints = {"server_cpus": 3.0, "samples": 100.0, "batch": 10.0, **wrong}

    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        tasks_of(Job(JobId("a"), hints=hints))


def test_layers_without_a_link_and_negative_worth_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="Gb/s"):
        network_of(Job(JobId("a"), hints={"layer0_mb": 1.0}))
    with pytest.raises(InvalidConfig, match="worth"):
        utility_of(Job(JobId("a"), hints={"worth": -1.0}))
