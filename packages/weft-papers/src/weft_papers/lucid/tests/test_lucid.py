"""The worked examples of Lucid (ASPLOS 2023), its invariants and its published pairs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import DevicePairs, read_pairs
from weft.perf.sharing.hinted_profile import profile_of
from weft.policies.srsf import Srsf
from weft.sim.physics import RunSegment
from weft.testing import view_of, with_knowledge
from weft_papers.lucid.authors import AuthorsLucid
from weft_papers.lucid.policy import Arrivals, Lucid, LucidMemory, keeps_packing
from weft_papers.lucid.queue import Candidate, first_host, label, score
from weft_papers.tests.together import job, together

RESNET, POINTNET = "ResNet18/CIFAR-10/64/0", "PointNet/ShapeNet/64/0"
QUIET = {"gpu_util": 20.0, "gmem_util": 10.0, "gmem_mib": 4000.0}
LOUD = {"gpu_util": 90.0, "gmem_util": 60.0, "gmem_mib": 4000.0}


# ---- scores


def test_averages_become_labels() -> None:
    assert [label(a) for a in (0.826, 0.878, 1.000, 0.783)] == [2, 1, 0, 2]


def test_the_tree_has_three_leaves() -> None:
    assert score(Profile(gpu_use=0.9, bandwidth_use=0.5)) == 2
    assert score(Profile(gpu_use=0.9, bandwidth_use=0.2)) == 1
    assert score(Profile(gpu_use=0.2, bandwidth_use=0.2)) == 0


@pytest.mark.data
def test_measured_averages_give_the_published_labels(data: Callable[[str], Path]) -> None:
    pairs = read_pairs(data("lucid/colocate_info.csv"))
    with data("lucid/single_data.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def average(model: str, batch: int, amp: int) -> float:
        tags = {t for both in pairs.speeds for t in both}
        (tag,) = [t for t in tags if t.startswith(f"{model}/") and t.endswith(f"/{batch}/{amp}")]
        mean = pairs.average(tag)
        assert mean is not None
        return mean

    assert average("DCGAN", 128, 0) == pytest.approx(0.826, abs=5e-4)
    assert average("EfficientNet", 64, 0) == pytest.approx(0.878, abs=5e-4)
    assert average("PPO", 64, 0) == pytest.approx(1.0, abs=5e-3)
    assert average("ResNet18", 64, 1) == pytest.approx(0.783, abs=5e-4)
    labels = [
        score(
            Profile(gpu_use=float(r["gpu_util"]) / 100, bandwidth_use=float(r["gmem_util"]) / 100)
        )
        for r in rows
    ]
    assert np.mean([t == int(r["label"]) for t, r in zip(labels, rows, strict=True)]) > 0.8


@pytest.mark.data
def test_pairs_are_as_measured(data: Callable[[str], Path]) -> None:
    pairs = read_pairs(data("lucid/colocate_info.csv"))
    tags = {t for both in pairs.speeds for t in both}

    def named(model: str, batch: int) -> str:
        (tag,) = [t for t in tags if t.startswith(f"{model}/") and t.endswith(f"/{batch}/0")]
        return tag

    resnet = named("ResNet18", 64)
    assert pairs.pair_speeds(resnet, named("PointNet", 64)) == (0.985, 0.9)
    assert pairs.pair_speeds(named("PointNet", 64), resnet) == (0.9, 0.985)
    assert pairs.pair_speeds(resnet, named("ResNet18", 128)) == (0.539, 0.658)
    assert pairs.pair_speeds(named("MobileNetV3", 64), named("DCGAN", 32)) == (0.812, 0.895)
    assert pairs.pair_speeds("BERT/SQuAD/32/0", resnet) == (1.0, 1.0)


# ---- the binder


def test_the_binder_takes_the_first_host_that_passes_every_rule() -> None:
    hosts = [
        Candidate(JobId("H1"), 2, 1, 9000.0, 4000.0, 24576.0),
        Candidate(JobId("H2"), 1, 2, 20000.0, 9000.0, 24576.0),
        Candidate(JobId("H3"), 1, 1, 12000.0, 1000.0, 24576.0),
        Candidate(JobId("H4"), 1, 0, 6000.0, 5000.0, 24576.0),
    ]
    new = Candidate(JobId("new"), 1, 1, 6000.0, 2400.0)

    assert first_host(new, hosts) == hosts[3]
    assert first_host(new, hosts[:3]) is None


def test_two_jumbos_are_refused_although_together_they_would_do_more() -> None:
    host = Candidate(JobId("h"), 1, 2, 1000.0, 100.0)

    assert first_host(Candidate(JobId("n"), 1, 2, 1000.0, 100.0), [host]) is None
    assert first_host(Candidate(JobId("n"), 1, 0, 1000.0, 100.0), [host]) == host


def test_a_full_device_and_a_gang_above_a_node_are_refused() -> None:
    host = Candidate(JobId("h"), 1, 0, 12.0, 100.0, 24.0)
    gang = Candidate(JobId("h"), 16, 0, 1.0, 100.0, 24.0)

    assert first_host(Candidate(JobId("n"), 1, 0, 12.0, 100.0), [host]) is None
    assert first_host(Candidate(JobId("n"), 1, 0, 11.9, 100.0), [host]) == host
    assert first_host(Candidate(JobId("n"), 16, 0, 1.0, 100.0), [gang]) is None


# ---- the dynamic strategy


def test_packing_follows_the_forecast() -> None:
    assert not keeps_packing([1.5, 2.5, 2.0, 1.0, 2.5], 2.0)
    assert keeps_packing([3.0, 2.0, 2.0, 2.0, 1.5], 2.0)


@pytest.mark.data
def test_one_window_in_seven_of_the_published_forecast_is_quiet(
    data: Callable[[str], Path],
) -> None:
    with data("lucid/venus_throughput_pred.csv").open(newline="", encoding="utf-8") as file:
        forecast = [float(row["pred_gpu_job"]) for row in csv.DictReader(file)]

    windows = [forecast[i : i + 5] for i in range(len(forecast) - 4)]

    assert np.mean([not keeps_packing(w, 2.0) for w in windows]) == pytest.approx(0.137, abs=0.002)


def test_submissions_are_counted_in_ten_minute_bins() -> None:
    log = Arrivals().with_submissions([0.0, 10.0], 10.0, 2).with_submissions([650.0], 650.0, 3)

    assert log.recent_bins(650.0) == [1.0, 2.0]
    assert log.with_submissions([], 4000.0, 3).recent_bins(4000.0) == [0.0] * 5
    assert log.with_submissions([], 2000.0, 3).recent_bins(2000.0) == [0.0, 0.0, 1.0, 2.0]


def test_every_submission_is_counted_once() -> None:
    view = view_of(4, ("a", 1, 60.0), ("b", 1, 60.0), now=30.0)
    for _ in range(2):
        view = replace(view, memory=Lucid().decide(view).memory)

        assert isinstance(view.memory, LucidMemory)
        assert len(view.memory.arrivals.recent) == 2


# ---- pairs in time


def pair_of(first: float, other: float) -> Colocated:
    return Colocated(profile_of, DevicePairs({(RESNET, POINTNET): (first, other)}))


def test_the_worked_pair_ends_when_worked_out_by_hand() -> None:
    a = job("A", model=RESNET, hints=LOUD)
    b = job("B", model=POINTNET, hints=QUIET)
    policy = AuthorsLucid(packing="on", corner=0)

    packed = together(policy, [(a, 100.0), (b, 50.0)], "1x1:rtx3090", pair_of(0.985, 0.9))
    serial = together(Srsf(), [(a, 100.0), (b, 50.0)], "1x1:rtx3090")

    assert packed.end["B"] == pytest.approx(55.5556, abs=1e-3)
    assert packed.end["A"] == pytest.approx(100.833, abs=1e-3)
    assert np.mean(list(packed.end.values())) == pytest.approx(78.19, abs=0.01)
    assert serial.end == {"B": 50.0, "A": 150.0}
    assert [run.on.sharing.share for run in packed.physics.runs if run.seq == 0] == [0.5, 1.0]


def drawn(seed: int, count: int) -> list[tuple[Job, float]]:
    rng = np.random.default_rng(seed)
    jobs, at = [], 0.0
    for i in range(count):
        at += float(rng.exponential(30.0))
        hints = {
            "gpu_util": float(rng.uniform(5, 100)),
            "gmem_util": float(rng.uniform(1, 80)),
            "gmem_mib": float(rng.uniform(1000, 20000)),
        }
        gpus = int(rng.choice([1, 1, 2, 4, 8, 16]))
        jobs.append((job(f"j{i}", gpus, at, hints=hints), float(rng.lognormal(5.5, 1.2))))
    return jobs


@examples(12)
@given(st.integers(0, 10_000), st.sampled_from([Lucid, AuthorsLucid]))
def test_pairs_keep_every_rule_and_nobody_is_preempted_in_the_main_cluster(
    seed: int, kind: type[Lucid]
) -> None:
    work = drawn(seed, 60)
    by_seq = [drawn_job for drawn_job, _ in work]

    def speeds(group: Sequence[Profile]) -> list[float]:
        return [0.8] * len(group)

    done = together(kind(packing="on"), work, "5x8:rtx3090", Colocated(profile_of, speeds))

    runs = [r for r in done.physics.runs if r.end > r.start]
    for run in runs:
        devices = set(run.on.devices)
        beside = [
            r
            for r in runs
            if r.seq != run.seq and r.start < run.end and run.start < r.end and _touch(r, run)
        ]
        assert len({r.seq for r in beside if r.start <= run.start < r.end}) <= 1
        for other in beside:
            jobs = by_seq[run.seq], by_seq[other.seq]
            assert set(other.on.devices) == devices
            assert sum(score(profile_of(j)) for j in jobs) <= 2
            assert sum(j.hints["gmem_mib"] for j in jobs) < 24576
    # The corner is the last node: everybody else starts once.
    main = {r.seq: 0 for r in runs}
    for at, name in done.started():
        seq = list(done.end).index(name)
        on = next(r.on for r in done.physics.runs if r.seq == seq and r.start == at)
        main[seq] += on.slices[0].node != "rtx3090-4"
    assert max(main.values()) == 1


def _touch(first: RunSegment, other: RunSegment) -> bool:
    def devices(run: RunSegment) -> set[tuple[str, int]]:
        return {(p.node, g) for p in run.on.slices for g in p.gpus}

    return bool(devices(first) & devices(other))


def test_without_packing_and_corner_and_with_perfect_estimates_it_is_shortest_service_first() -> (
    None
):
    # Everybody is here from the start, so nothing is ever preempted under either policy.
    work = [(replace(drawn_job, submitted=0.0), length) for drawn_job, length in drawn(3, 40)]
    work = [(drawn_job, length) for drawn_job, length in work if drawn_job.demand.gpus <= 8]

    ours = together(AuthorsLucid(packing="off", corner=0), work, "2x8:rtx3090")

    order = sorted(work, key=lambda w: w[1] * w[0].demand.gpus)
    starts = [ours.start[drawn_job.id] for drawn_job, _ in order]
    assert starts == sorted(starts)


# ---- the corner


def test_a_short_job_ends_in_the_corner_and_a_long_one_moves_on() -> None:
    work = [(job("short", hints=QUIET), 150.0), (job("long", hints=QUIET), 500.0)]

    done = together(Lucid(packing="on"), work, "4x2:rtx3090")

    assert {r.on.slices[0].node for r in done.physics.runs if r.seq == 0} == {"rtx3090-3"}
    where = [r.on.slices[0].node for r in done.physics.runs if r.seq == 1]
    assert where == ["rtx3090-3", "rtx3090-0"]
    assert done.stopped() == [(200.0, "long")]
    assert done.end == {"short": 150.0, "long": 500.0}


def test_the_corner_serves_small_jobs_first_and_lets_nobody_wait_for_ever() -> None:
    work = [(job(f"j{i}", 2), 1000.0) for i in range(4)] + [(job("one", 1), 1000.0)]

    done = together(Lucid(patience=300.0), work, "6x2:rtx3090")

    first = {name: at for at, name in reversed(done.started())}
    assert first["one"] == 0.0
    assert first["j0"] == 200.0
    # One more is profiled from 400 on; by then the others have waited 300 s and start elsewhere.
    assert first["j1"] == first["j2"] == first["j3"] == 300.0


def test_a_job_that_needs_the_whole_cluster_gets_it() -> None:
    done = together(Lucid(), [(job("all", 8), 100.0), (job("one"), 300.0)], "4x2:rtx3090")

    assert max(done.end.values()) < 1000.0


def test_nothing_is_packed_before_it_was_measured() -> None:
    view = [measured(view_of("1x1:rtx3090", *(job(n, hints=QUIET) for n in "ab"))) for _ in "12"]

    honest = Lucid(packing="on").decide(view[0])
    theirs = AuthorsLucid(packing="on").decide(view[1])

    assert len(view[0].after(honest)) == 1
    assert len(view[1].after(theirs)) == 2


def measured(view: View) -> View:
    return with_knowledge(view, colocation=Colocated(profile_of))


def test_an_empty_corner_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="profiles nothing"):
        Lucid(limit_s=0.0)


def test_unknown_lengths_come_last() -> None:
    view = measured(view_of("1x1:rtx3090", ("a", 1, inf), ("b", 1, 60.0)))

    assert set(view.after(Lucid(packing="off").decide(view))) == {"b"}


def test_a_young_log_has_one_bin_and_a_cluster_twice_as_large_is_busy_with_twice_as_many() -> None:
    assert Arrivals().with_submissions([5.0, 6.0], 6.0, 2).recent_bins(6.0) == [2.0]
    small, large = (Lucid()._quiet(view_of(nodes)) for nodes in ("1x8:v100", "2x8:v100"))
    assert large == pytest.approx(2.0 * small)


def test_whose_use_was_watched_is_not_profiled_and_who_was_only_started_is() -> None:
    jobs = [replace(job(name), launch=Launch(("train",))) for name in ("watched", "unseen")]
    use = Colocated(lambda drawn_job: Profile(gpu_use=0.3 if drawn_job.id == "watched" else 1.0))
    view = with_knowledge(view_of("4x2:rtx3090", *jobs), colocation=use)

    held = view.after(Lucid(packing="off").decide(view))

    where = {name: on.slices[0].node for name, on in held.items()}
    assert where == {"watched": "rtx3090-0", "unseen": "rtx3090-3"}


@pytest.mark.parametrize(("submissions", "together"), [(1, False), (40, True)])
def test_pairs_are_made_only_while_more_jobs_come_than_in_quiet_times(
    submissions: int, together: bool
) -> None:
    # On 1,080 GPUs more than two submissions in ten minutes are busy times. Two quiet jobs that
    # were measured, and one GPU that neither of the others may use.
    cluster = "1x1:rtx3090+1x1079:v100"
    jobs = [
        replace(job(name, hints=QUIET, model=model), demand=Demand(1, kinds=("rtx3090",)))
        for name, model in (("a", RESNET), ("b", POINTNET))
    ]
    view = with_knowledge(view_of(cluster, *jobs, now=600.0), colocation=pair_of(0.985, 0.9))
    for row in range(2):
        view.table.set(row, TableColumns.RAN_BASE, 500.0)
    recent = tuple(float(at) for at in range(submissions))
    memory = LucidMemory(Arrivals(recent, 0.0, submissions + 2.0))

    plan = Lucid(corner=0).decide(replace(view, memory=memory))

    assert (len(view.after(plan)) == 2) is together
