"""The worked examples of Muri (SIGCOMM 2022), its invariants and its published runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cheap import check_contract

import weft
from weft.core.errors import InvalidConfig
from weft.core.model.job import Demand, Discipline, Job, JobId
from weft.core.plan.view import View
from weft.formulas.sharing import lockstep
from weft.perf.sharing.colocation import Colocated, compute_interleaved_speeds
from weft.testing import view_of
from weft_papers.muri.merge import Bucket, MergedGroup, merge_all
from weft_papers.muri.policy import Muri
from weft_papers.muri.truth import CONTENTION, MuriTruth

# Milliseconds on 4 V100: an iteration alone; data, GPU and network stages.
PROFILES = {
    "resnet18": (921, (723, 113, 73)),
    "bert": (190, (0.5, 163, 18)),
    "vgg19": (212, (84, 85, 73)),
    "vgg16": (201, (82, 72, 67)),
    "a2c": (533, (502, 10, 0.3)),
    "gpt2": (433, (0.6, 413, 20)),
    "dqn": (505, (440, 8, 0.4)),
    "shufflenet": (886, (703, 62, 17)),
}
TRUTH = MuriTruth()


def job(model: str, seconds: float = 1000.0, gpus: int = 4, name: str = "") -> Job:
    alone, stages = PROFILES[model]
    hints = {f"stage{i}_s": ms / 1e3 for i, ms in enumerate(stages)}
    return Job(
        JobId(name or model),
        demand=Demand(gpus),
        model=model,
        hints={"iteration_s": alone / 1e3, "duration_s": seconds, **hints},
    )


def believed() -> Colocated:
    return Colocated(TRUTH.profile, contention=CONTENTION)


def crowd(cluster: str, *jobs: Job) -> View:
    return view_of(cluster, *jobs)


def together(view: View, policy: Muri) -> set[frozenset[str]]:
    """Who shares devices under the policy."""
    groups: dict[object, set[str]] = {}
    for name, on in view.after(policy.decide(view)).items():
        groups.setdefault(on.devices, set()).add(name)
    return {frozenset(group) for group in groups.values()}


# ---- the period, general form


@pytest.mark.parametrize(
    ("members", "seconds", "busy"),
    [
        (((2.0, 1.0, 1.0, 0.0), (0.0, 1.0, 2.0, 1.0)), 5.0, 0.4),
        (((5.0, 2.0, 1.0, 0.0), (1.0, 3.0, 4.0, 2.0), (0.0, 1.0, 6.0, 3.0)), 13.0, 0.5385),
        (tuple(tuple(4.0 if i == j else 1.0 for j in range(4)) for i in range(4)), 7.0, 1.0),
    ],
)
def test_four_measured_stages(
    members: tuple[lockstep.Stages, ...], seconds: float, busy: float
) -> None:
    best = lockstep.best(members)

    assert best.seconds == pytest.approx(seconds)
    assert lockstep.efficiency(members, best.seconds) == pytest.approx(busy, abs=1e-4)


def test_two_stages_have_two_slots() -> None:
    assert lockstep.best(((2.0, 1.0), (1.0, 2.0))).seconds == 3.0
    assert lockstep.best(((3.0, 1.0), (3.0, 1.0))).seconds == 6.0


def test_the_order_matters() -> None:
    three = ((5.0, 2.0, 1.0, 0.0), (1.0, 3.0, 4.0, 2.0), (0.0, 1.0, 6.0, 3.0))

    assert lockstep.worst(three).seconds == 18.0
    assert lockstep.worst(
        tuple(tuple(4.0 if i == j else 1.0 for j in range(4)) for i in range(4))
    ).seconds == pytest.approx(13.0)


@given(
    st.lists(
        st.tuples(*[st.floats(0.0, 10.0) for _ in range(4)]).filter(lambda t: sum(t) > 0.1),
        min_size=2,
        max_size=4,
    )
)
def test_a_period_is_as_long_as_any_member_and_any_resource(
    members: list[tuple[float, ...]],
) -> None:
    best = lockstep.best(tuple(members)).seconds

    assert best >= max(sum(m) for m in members) - 1e-9
    if len(members) == 4:
        assert best >= max(sum(m[r] for m in members) for r in range(4)) - 1e-9
        assert lockstep.efficiency(members, best) <= 1.0 + 1e-9


# ---- the period as the authors measure it: data, GPU, network


@pytest.mark.parametrize(
    ("names", "seconds", "stretched", "weight", "worst", "alone", "kept"),
    [
        ("resnet18 bert", 909.0, 1191.10, 0.2289, 999.0, 1127.66, False),
        ("resnet18 gpt2", 909.0, 1191.10, 0.2818, 1249.0, 1374.31, True),
        ("vgg19 bert", 248.5, 325.62, 0.3251, 339.0, 408.03, True),
        ("a2c bert", 512.3, 671.29, 0.2584, 675.0, 733.85, True),
        ("bert gpt2", 576.5, 755.41, 0.2036, 614.0, 632.34, False),
        ("resnet18 bert vgg19", 909.0, 1343.35, 0.2480, 999.0, 1342.85, False),
        ("resnet18 bert vgg19 a2c", 909.0, 1226.93, 0.3759, 1225.0, 1883.84, True),
    ],
)
def test_the_published_profiles(
    names: str,
    seconds: float,
    stretched: float,
    weight: float,
    worst: float,
    alone: float,
    kept: bool,
) -> None:
    group = [TRUTH.profile(job(name)) for name in names.split()]
    stages = tuple(p.stages for p in group)
    stretch = CONTENTION[len(group) - 1]
    speeds = compute_interleaved_speeds(tuple(group), Discipline.LOCKSTEP, stretch)
    period = group[0].step_s / speeds[0]

    assert lockstep.best(stages).seconds * 1e3 == pytest.approx(seconds)
    assert lockstep.worst(stages).seconds * 1e3 == pytest.approx(worst)
    assert period * 1e3 == pytest.approx(stretched, abs=0.01)
    assert lockstep.efficiency(stages, period) == pytest.approx(weight, abs=1e-4)
    assert sum(p.step_s for p in group) * 1e3 == pytest.approx(alone, abs=0.01)
    assert (sum(speeds) >= 1.0) is kept


# ---- grouping


def test_the_matching_of_greatest_weight_is_not_the_greedy_one() -> None:
    names = ["resnet18", "bert", "a2c", "gpt2"]
    weights = {
        frozenset(pair): lockstep.efficiency(stages, CONTENTION[1] * lockstep.best(stages).seconds)
        for pair in combinations(range(4), 2)
        for stages in [tuple(PROFILES[names[i]][1] for i in pair)]
    }
    bucket = Bucket(4, 2, [MergedGroup([i], [i]) for i in range(4)])

    merge_all([bucket], room=8.0, weight=lambda kind: weights.get(frozenset(kind), 0.0))

    assert {frozenset(group.rows) for group in bucket.groups} == {
        frozenset({0, 1}),
        frozenset({2, 3}),
    }


def test_no_more_jobs_share_a_device_than_may_although_gpus_are_short() -> None:
    bucket = Bucket(1, 3, [MergedGroup([i], [i]) for i in range(4)])

    merge_all([bucket], room=1.0, weight=len)

    assert sorted(len(group.rows) for group in bucket.groups) == [2, 2]


def test_a_group_slower_than_taking_turns_is_taken_apart() -> None:
    jobs = [job(m, 1.0 + i) for i, m in enumerate(["a2c", "gpt2", "resnet18", "bert"])]
    view = crowd("1x8:v100", *jobs)

    assert together(view, Muri()) == {frozenset({"a2c", "gpt2"}), frozenset({"resnet18"})}


def test_four_share_one_place_when_there_is_one() -> None:
    jobs = [job(model) for model in ("resnet18", "bert", "a2c", "gpt2")]

    assert together(crowd("1x4:v100", *jobs), Muri()) == {frozenset(j.id for j in jobs)}


def test_eight_models_on_two_places() -> None:
    view = crowd("1x8:v100", *[job(model) for model in PROFILES])

    assert together(view, Muri()) == {
        frozenset({"resnet18", "shufflenet", "vgg19", "vgg16"}),
        frozenset({"bert", "a2c", "gpt2", "dqn"}),
    }


def test_nobody_shares_while_there_is_room() -> None:
    view = crowd("2x8:v100", *[job(model) for model in ("resnet18", "bert", "a2c", "gpt2")])

    assert all(len(group) == 1 for group in together(view, Muri()))


def test_only_equal_counts_share() -> None:
    jobs = [job("resnet18", gpus=4), job("gpt2", gpus=2), job("bert", gpus=2), job("a2c", gpus=4)]
    view = crowd("1x4:v100", *jobs)

    for group in together(view, Muri()):
        assert len({view.job(view.table.row(JobId(name))).demand.gpus for name in group}) == 1


def test_groups_must_fit_in_memory() -> None:
    large = [
        Job(j.id, demand=j.demand, model=j.model, hints={**j.hints, "gmem_mib": 20_000.0})
        for j in (job("a2c"), job("gpt2"))
    ]

    assert together(crowd("1x4:v100", *large), Muri()) in (
        {frozenset({"a2c"})},
        {frozenset({"gpt2"})},
    )


def test_too_large_groups_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="1 to 4"):
        Muri(size=5)


# ---- own rates


@given(st.lists(st.sampled_from(sorted(PROFILES)), min_size=2, max_size=4))
def test_own_rates_are_never_below_lock_step_and_use_no_resource_twice(names: list[str]) -> None:
    group = tuple(TRUTH.profile(job(name)) for name in names)
    stretch = CONTENTION[len(group) - 1]
    step = np.array(compute_interleaved_speeds(group, Discipline.LOCKSTEP, stretch))
    own = np.array(compute_interleaved_speeds(group, Discipline.WORK_CONSERVING, stretch))
    halves = np.array([[s[0] / 2, s[0] / 2, s[1], s[2]] for s in (p.stages for p in group)])
    used = stretch * (halves / np.array([p.step_s for p in group])[:, None] * own[:, None]).sum(0)
    floor = stretch * (halves / np.array([p.step_s for p in group])[:, None] * step[:, None]).sum(0)

    assert (own >= np.minimum(step, 1.0) - 1e-9).all()
    assert (own <= 1.0 + 1e-9).all()
    assert (used <= np.maximum(1.0, floor) + 1e-6).all()


def test_a_fast_job_beside_a_slow_one_keeps_most_of_its_speed() -> None:
    group = (TRUTH.profile(job("resnet18")), TRUTH.profile(job("bert")))

    step = compute_interleaved_speeds(group, Discipline.LOCKSTEP, CONTENTION[1])
    own = compute_interleaved_speeds(group, Discipline.WORK_CONSERVING, CONTENTION[1])

    assert step[1] < 0.2
    assert own[1] > 4 * step[1]
    assert own[0] >= step[0]


# ---- whole runs


@pytest.mark.parametrize(
    "policy",
    [
        Muri(),
        Muri(known=False),
        Muri(discipline="work-conserving"),
        Muri(size=2),
        Muri(matching=False),
    ],
    ids=str,
)
def test_the_contract(policy: Muri) -> None:
    check_contract(policy)


def average_s(data: Callable[[str], Path], trace: str, policy: str) -> float:
    path = data(f"muri/traces/{trace}.csv")
    result = weft.simulate(str(path), policy, "8x8:v100", perf="muri")
    return 3600 * result.outcomes[policy][0].metrics["avg_jct_h"]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "policy"),
    [("SRTF", "srtf"), ("SRSF", "srsf"), ("Tiresias", "las:thresholds=3250/7200")],
)
def test_baselines_on_trace3_are_the_published_ones(
    data: Callable[[str], Path], name: str, policy: str
) -> None:
    theirs = json.loads(data("muri/published_results.json").read_text())["avg_jct"][name]

    assert average_s(data, "trace3", policy) == pytest.approx(theirs["trace3"], rel=1e-3)


@pytest.mark.data
@pytest.mark.slow
def test_muri_on_trace3_is_close_to_the_published_one(data: Callable[[str], Path]) -> None:
    theirs = json.loads(data("muri/published_results.json").read_text())["avg_jct"]
    short, long = (average_s(data, "trace3", p) for p in ("muri", "muri:known=false"))

    assert short == pytest.approx(theirs["Muri-S"]["trace3"], rel=0.03)
    assert long == pytest.approx(theirs["Muri-L"]["trace3"], rel=0.03)
    assert average_s(data, "trace3", "muri:discipline=work-conserving") <= 0.75 * short


@pytest.mark.data
def test_groups_of_one_are_srsf(data: Callable[[str], Path]) -> None:
    path = data("muri/traces/trace3.csv")
    alone, srsf = (
        weft.simulate(str(path), policy, "8x8:v100", perf="muri")
        for policy in ("muri:size=1", "srsf")
    )
    ours = alone.outcomes["muri:size=1"][0].metrics["avg_jct_h"]

    assert ours == pytest.approx(srsf.outcomes["srsf"][0].metrics["avg_jct_h"], rel=0.03)
