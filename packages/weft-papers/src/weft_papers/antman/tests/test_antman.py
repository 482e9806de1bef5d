"""AntMan (OSDI 2020): its pacing and control arithmetic, and what guaranteed jobs may lose.

The baseline in Muri's simulator is held against the results that its authors published.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cheap import check_contract

import weft
from weft.base import tokens as wire
from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile
from weft.core.model import job as model
from weft.core.model.cluster import parse_cluster
from weft.core.model.trace import Trace, Truth
from weft.core.plan.view import View
from weft.core.protocols import Resident
from weft.core.spec.registry import build
from weft.formulas.sharing.turns import gap_iterations, guarded_speed, paced_speed
from weft.node.tokens.coordinator import Coordinator
from weft.node.tokens.disciplines import discipline, idle_us
from weft.node.tokens.members import Key
from weft.perf.sharing.colocation import Colocated
from weft.sim.result import Outcome
from weft.testing import view_of
from weft.testing.check import check_run
from weft_papers.antman.authors import MuriAntman
from weft_papers.antman.fair import HIGH, Dial, dial_under, next_share, turn_dial
from weft_papers.antman.policy import Antman
from weft_papers.muri.truth import ALONE

# Seconds of an iteration on 4 GPUs, then of its data, GPU and network stages, as published.
BERT, GPT2 = (0.190, (0.0005, 0.163, 0.018)), (0.433, (0.0006, 0.413, 0.020))


# ---- arithmetic


def test_shares_rise_in_steps_and_fall_at_once() -> None:
    share, seen = 0.40, []
    for slowdown in (1.01, 1.03, 1.08, 1.00):
        share = next_share(share, slowdown)
        seen.append(share)

    assert seen == pytest.approx([0.45, 0.45, 0.225, 0.275])


def test_a_dial_remembers_what_was_too_much_until_the_jobs_above_change() -> None:
    above = (model.JobId("a"),)
    dial = turn_dial(Dial(0.4, 2.0, 0.0, above), 1.08, 5.0)

    while (up := turn_dial(dial, 1.0, 10.0)) != dial:
        dial = up

    assert 0.2 < dial.share < 0.4
    assert dial_under(dial, (model.JobId("b"),), 20.0) == Dial(0.05, 2.0, 20.0, (model.JobId("b"),))
    assert dial_under(dial, (), 20.0).share == 1.0


def test_an_opportunistic_job_runs_in_the_gaps_of_guaranteed_ones() -> None:
    bert = 163 / 190

    assert paced_speed(1.0, 113 / 921, bert) == 1.0
    assert paced_speed(1.0, 413 / 433, bert) == pytest.approx(0.0538, abs=1e-4)
    assert paced_speed(0.3, 113 / 921, bert) == 0.3


def test_asking_beyond_the_gaps_is_felt_above() -> None:
    assert guarded_speed(0.5, 0.5) == pytest.approx(0.99)
    assert guarded_speed(0.9, 0.2) == pytest.approx(0.99 / 1.1)


def resident(name: str, profile: Profile, tier: model.Tier, share: float = 1.0) -> Resident:
    sharing = model.Sharing(share=share, tier=tier, discipline=model.Discipline.PACED)
    on = model.Allocation((model.Slice(model.NodeId("n"), (0,)),), sharing)
    return Resident(model.Job(model.JobId(name), model=profile.tag), on, "v100")


def test_a_job_that_is_paced_alone_keeps_to_its_share_and_spilled_memory_costs() -> None:
    heavy = Profile(mem_gb=10.0)
    coupling = Colocated(lambda _: heavy)
    alone = resident("a", heavy, model.Tier.OPPORTUNISTIC, 0.5)
    capped = replace(alone.on, sharing=replace(alone.on.sharing, gpu_mem_gb=5.0))
    spilled = alone._replace(on=capped)

    assert coupling.speed(alone, ()) == 0.5
    assert coupling.speed(spilled, ()) == pytest.approx(0.35)


# ---- Muri's model


@pytest.mark.parametrize(
    ("op", "rg", "seconds"),
    [
        ("bert", "resnet18", 1.86963),
        ("resnet18", "bert", 2.3142),
        ("gpt2", "a2c", 1.08199),
        ("vgg19", "vgg16", 0.40803),
        ("a2c", "gpt2", 0.87899),
    ],
)
def test_iteration_times_above_a_guaranteed_job(
    data: Callable[[str], Path], op: str, rg: str, seconds: float
) -> None:
    lines = data("muri/model_profiles.csv").read_text().splitlines()[1:]
    rows = {(f[0], f[1]): [float(v) / 1e3 for v in f[3:7]] for f in (x.split(",") for x in lines)}
    own, host = rows[op, "4"], rows[rg, "4"]

    count = gap_iterations(tuple(own[1:]), tuple(host[1:]))

    assert max(own[0], count * host[0]) * ALONE == pytest.approx(seconds, abs=1e-5)


def test_two_opportunistic_jobs_take_twice_as_long_in_muris_model() -> None:
    profiles = {"bert": Profile(*BERT, tag="bert"), "gpt2": Profile(*GPT2, tag="gpt2")}
    coupling = Colocated(lambda job: profiles[job.model], gaps=True)
    pair = [resident(name, profiles[name], model.Tier.OPPORTUNISTIC) for name in ("bert", "gpt2")]

    assert 0.190 * ALONE / coupling.speed(pair[0], pair[1:]) == pytest.approx(0.3857)


def waiting(name: str, gpus: int, priority: float, at: float = 0.0) -> model.Job:
    return model.Job(model.JobId(name), at, model.Demand(gpus), priority=priority)


def after(view: View, policy: Antman) -> dict[model.JobId, model.Allocation]:
    return view.after(policy.decide(view))


def test_in_muris_model_a_gang_keeps_a_part_of_a_node_and_others_slip_in() -> None:
    view = view_of(
        "1x4:v100", waiting("rg", 3, 0), waiting("gang", 4, 0), waiting("op", 4, -1), now=0.0
    )

    plan = MuriAntman().decide(view)
    held = view.after(plan)

    assert set(held) == {"rg", "op"}
    assert plan.memory.kept == {"gang": (model.Slice(model.NodeId("v100-0"), (3,)),)}  # type: ignore[attr-defined]
    assert held[model.JobId("op")].sharing.tier is model.Tier.OPPORTUNISTIC


@pytest.mark.parametrize("trace", ["trace3", "trace3_pr"])
def test_muris_results_for_antman_are_met(data: Callable[[str], Path], trace: str) -> None:
    published = json.loads(data("muri/published_results.json").read_text())["avg_jct"]["AntMan"]
    path = data(f"muri/traces/{trace}.csv")

    policy = MuriAntman()
    result = weft.simulate(path, policy, "8x8:v100", perf="muri")

    ours = result.outcomes["antman"][0].avg_jct_h * 3600.0
    assert ours == pytest.approx(published[trace], rel=0.01)


# ---- the fair version


def used(
    name: str, gpus: int, tier: model.Tier, busy: float, at: float = 0.0, mem: float = 0.0
) -> model.Job:
    hints = {"iteration_s": 1.0, "gpu_util": 100.0 * busy, "gmem_mib": 1024.0 * mem}
    return model.Job(model.JobId(name), at, model.Demand(gpus), tier=tier, hints=hints)


FIRM, LOOSE = model.Tier.GUARANTEED, model.Tier.OPPORTUNISTIC


def test_opportunistic_jobs_choose_the_least_used_devices() -> None:
    busy = used("busy", 1, FIRM, 0.7)
    quiet = used("quiet", 1, FIRM, 0.2)
    full = used("full", 1, FIRM, 0.9)
    op = used("op", 1, LOOSE, 0.5)

    held = after(view_of("1x3:v100", busy, quiet, full, op), Antman())

    assert held[op.id].devices == held[quiet.id].devices
    assert held[op.id].sharing.share == pytest.approx(0.05)
    assert held[op.id].slices[0].cpus == 0.0


def test_memory_caps_leave_guaranteed_jobs_all_they_use() -> None:
    held = after(
        view_of("1x1:t4", used("a", 1, FIRM, 0.3, mem=9.0), used("b", 1, LOOSE, 0.3, mem=12.0)),
        Antman(),
    )

    assert held[model.JobId("a")].sharing.gpu_mem_gb == pytest.approx(9.0)
    assert held[model.JobId("b")].sharing.gpu_mem_gb == pytest.approx(16.0 - 9.0 - 0.5)


def test_beyond_its_quota_a_tenant_runs_in_the_gaps() -> None:
    jobs = [replace(used(f"j{i}", 1, FIRM, 0.5), tenant="vision") for i in range(3)]

    held = after(view_of(4, *jobs), Antman(quota={"vision": 2}))

    assert [held[job.id].sharing.tier for job in jobs] == [FIRM, FIRM, LOOSE]


def test_a_gang_that_waits_keeps_devices_from_later_ones_but_not_from_the_gaps() -> None:
    first, gang = used("first", 2, FIRM, 0.5), used("gang", 4, FIRM, 0.5)
    later, op = used("later", 1, FIRM, 0.5), used("op", 2, LOOSE, 0.5)

    held = after(view_of("1x4:v100", first, gang, later, op), Antman())

    assert set(held) == {"first", "op"}
    assert held[op.id].devices == ((model.NodeId("v100-0"), (2, 3)),)


def ends(jobs: list[tuple[model.Job, float]], gpus: str, policy: Antman | None = None) -> Outcome:
    trace = Trace("t", tuple((job, Truth(length)) for job, length in jobs))
    return weft.simulate(trace, policy or Antman(), gpus).outcomes["antman"][0]


def test_the_control_loop_finds_the_gap() -> None:
    firm, op = used("firm", 1, FIRM, 0.7), used("op", 1, LOOSE, 1.0)

    outcome = ends([(firm, 10_000.0), (op, 1_000.0)], "1x1:v100")

    # 30 % of the device is left: the job in the gaps gets most of that, the other loses little.
    assert outcome.per_job.end_s[0] < 10_000.0 * HIGH
    assert 1_000.0 / 0.36 < outcome.per_job.end_s[1] < 1_000.0 / 0.25


def test_when_the_guaranteed_job_leaves_the_other_has_the_device() -> None:
    firm, op = used("firm", 1, FIRM, 0.7), used("op", 1, LOOSE, 1.0)

    outcome = ends([(firm, 100.0), (op, 1_000.0)], "1x1:v100")

    assert outcome.per_job.end_s[1] < 1_000.0 + 110.0


def test_promotion_gives_a_job_its_own_devices_when_its_turn_comes() -> None:
    tenants = [replace(used(f"j{i}", 1, FIRM, 0.7), tenant="vision") for i in range(2)]
    jobs = [(tenants[0], 100.0), (tenants[1], 1_000.0)]

    quota = {"vision": 1.0}
    stays = ends(jobs, "1x1:v100", Antman(quota=quota))
    moves = ends(jobs, "1x1:v100", Antman(quota=quota, promote=True))

    assert moves.per_job.end_s[1] <= stays.per_job.end_s[1] + 1e-6


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_in_steady_state_guaranteed_jobs_lose_at_most_what_they_tolerate(
    busy: float, own: float
) -> None:
    above = (model.JobId("a"),)
    dial, now = Dial(0.05, 2.0, 0.0, above), 0.0
    for _ in range(100):
        now += 5.0
        dial = turn_dial(dial, 1.0 / guarded_speed(busy, dial.share * own), now)

    assert 1.0 / guarded_speed(busy, dial.share * own) <= HIGH + 1e-9


def test_guaranteed_jobs_lose_at_most_five_percent_while_others_fill_the_rest() -> None:
    rng = np.random.default_rng(0)
    jobs = []
    for i in range(120):
        tier = LOOSE if i % 2 else FIRM
        busy = float(rng.uniform(0.1, 1.0))
        job = used(f"j{i}", int(rng.choice([1, 1, 2, 4])), tier, busy, at=60.0 * i)
        jobs.append((job, float(rng.lognormal(7.0, 1.0))))

    alone = ends([pair for pair in jobs if pair[0].tier is FIRM], "2x8:v100")
    together = ends(jobs, "2x8:v100")

    firm = np.array([job.tier is FIRM for job, _ in jobs])
    jct = together.per_job.jct_s
    assert jct[firm].mean() <= 1.05 * alone.per_job.jct_s.mean()
    assert not np.isnan(together.per_job.end_s).any()
    # The opportunistic half costs hardly any time beyond that of the guaranteed half.
    assert together.makespan_h < 1.5 * alone.makespan_h


def test_quotas_that_cannot_be_read_are_answered() -> None:
    with pytest.raises(InvalidConfig, match="quota='vision:16' is not name=number"):
        build("policy", "antman:quota=vision:16")
    with pytest.raises(InvalidConfig, match="quota of 'vision' is -1"):
        Antman(quota={"vision": -1})
    with pytest.raises(InvalidConfig, match="epoch=0"):
        Antman(epoch=0.0)


def test_both_variants_keep_the_contract() -> None:
    check_contract(Antman(promote=True, quota={"vision": 4}, loose_priority=0.0))
    trace = Trace(
        "t", tuple((waiting(f"j{i}", 1 + i % 8, i % 2, 10.0 * i), Truth(99.0)) for i in range(40))
    )
    check_run(MuriAntman(), parse_cluster("2x8:v100"), trace)


def test_a_share_whose_half_would_be_too_little_is_taken_away() -> None:
    assert next_share(0.02, 1.2) == pytest.approx(0.01)
    assert next_share(0.018, 1.2) == 0.0


@pytest.mark.parametrize(
    ("run", "slept", "percent", "idle"),
    [
        (1e5, 0.0, 50, 99_950),
        (1e5, 0.0, 25, 299_950),
        (2e5, 0.0, 80, 49_950),
        (1e3, 0.0, 99, 0),
        (1e5, 0.0, 100, 0),
        (199_950.0, 99_950.0, 50, 0),
        (1e5, 0.0, 0, float("inf")),
    ],
)
def test_pauses_leave_a_job_its_share(
    run: float, slept: float, percent: float, idle: float
) -> None:
    assert idle_us(run, percent, slept) == pytest.approx(idle)


@pytest.mark.parametrize(("weight", "pause_s"), [(0.5, 0.09995), (0.25, 0.29995), (1.0, 0.0)])
def test_a_job_that_is_paced_on_a_device_pauses_as_published(weight: float, pause_s: float) -> None:
    gpu, key = ("gpu:0",), Key(1)
    coordinator = Coordinator(discipline("paced"))
    coordinator.handle(0.0, key, wire.Join("a", 0, 1, "opportunistic", weight=weight))
    coordinator.handle(1.0, key, wire.Ask(1, gpu))
    coordinator.handle(1.1, key, wire.Free(1, 0.1, 1))

    granted = coordinator.handle(1.1, key, wire.Ask(2, gpu))

    assert bool(granted) is (pause_s == 0.0)
    if pause_s:
        assert coordinator.wake_at == pytest.approx(1.1 + pause_s)
