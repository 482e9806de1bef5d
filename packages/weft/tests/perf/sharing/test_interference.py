"""Rates of jobs that share a GPU: laws that hold for any jobs, and the shipped model."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import InvalidConfig
from weft.perf.sharing.interference import (
    MPS,
    TIMESLICING,
    UNKNOWN,
    Features,
    dump,
    fits_memory,
    load_shipped,
    parse,
    rates,
    rates_by_share,
)

SHARE = st.floats(0.0, 1.0)
JOBS = st.builds(
    Features,
    busy=st.none() | SHARE,
    fill=SHARE,
    bandwidth=SHARE,
    kernel_us=st.floats(0.5, 1e4),
    step_s=st.floats(1e-4, 60.0),
    mem_gb=st.floats(0.1, 80.0),
)
DISCIPLINES = st.sampled_from([TIMESLICING, MPS])
LATENT = st.tuples(st.floats(0.0, 1.0), st.floats(0.05, 20.0))
COSTS = st.floats(0.05, 1.2)


@given(st.lists(JOBS, max_size=6), DISCIPLINES)
def test_every_rate_is_above_0_and_at_most_1(group: list[Features], discipline: str) -> None:
    speeds = rates(group, discipline)

    assert speeds.shape == (len(group),)
    assert ((speeds > 0.0) & (speeds <= 1.0)).all()


@given(JOBS, DISCIPLINES)
def test_a_job_alone_runs_at_its_own_rate(job: Features, discipline: str) -> None:
    assert rates([job], discipline).tolist() == [1.0]


@given(st.lists(JOBS, min_size=1, max_size=5), JOBS, DISCIPLINES)
def test_another_member_never_speeds_anyone_up(
    group: list[Features], more: Features, discipline: str
) -> None:
    before, after = rates(group, discipline), rates([*group, more], discipline)

    assert (after[:-1] <= before + 1e-12).all()


@given(JOBS, st.integers(2, 6), DISCIPLINES)
def test_identical_jobs_get_identical_rates(job: Features, count: int, discipline: str) -> None:
    assert len(set(rates([job] * count, discipline).tolist())) == 1


@given(st.lists(JOBS, min_size=2, max_size=5), DISCIPLINES)
def test_the_order_of_members_does_not_matter(group: list[Features], discipline: str) -> None:
    forward, backward = rates(group, discipline), rates(group[::-1], discipline)

    np.testing.assert_allclose(forward, backward[::-1], rtol=1e-9)


@given(st.lists(LATENT, min_size=2, max_size=4), st.integers(0, 1), st.floats(0.0, 5.0), COSTS)
def test_a_heavier_neighbour_never_helps(
    jobs: list[tuple[float, float]], which: int, more: float, cost: float
) -> None:
    share, weight = jobs[-1]
    heavier = (min(share + more, 1.0), weight) if which == 0 else (share, weight + more)

    before, after = rates_by_share(jobs, cost), rates_by_share([*jobs[:-1], heavier], cost)

    assert all(b <= a + 1e-12 for a, b in zip(before[:-1], after[:-1], strict=True))


@given(LATENT, LATENT, COSTS)
def test_pairs_are_settled_as_groups_are(
    first: tuple[float, float], other: tuple[float, float], cost: float
) -> None:
    absent = (0.0, 1.0)

    two, three = rates_by_share([first, other], cost), rates_by_share([first, other, absent], cost)

    np.testing.assert_allclose(two, three[:2], rtol=1e-12)


def test_jobs_that_fill_the_gpu_get_fair_shares_and_tiny_ones_all() -> None:
    for count in (2, 3, 4):
        assert rates_by_share([(1.0, 1.0)] * count, 1.0) == pytest.approx([1.0 / count] * count)
        assert min(rates_by_share([(0.001, 1.0)] * count, 1.0)) > 0.99


@pytest.mark.parametrize("discipline", [TIMESLICING, MPS])
def test_jobs_that_hardly_use_the_gpu_hardly_notice_each_other(discipline: str) -> None:
    tiny = Features(busy=0.01, fill=0.1, bandwidth=0.01, kernel_us=5.0, step_s=0.05)

    assert rates([tiny, tiny], discipline).min() > 0.9


def test_measured_workloads_share_as_they_did() -> None:
    known = load_shipped().known
    heavy, light = known["bert-base:32"], known["lstm:64"]

    assert rates([heavy, heavy], TIMESLICING) == pytest.approx([0.5, 0.5], abs=0.06)
    assert rates([heavy, heavy], MPS) == pytest.approx([0.68, 0.68], abs=0.08)
    assert rates([light, light], TIMESLICING).sum() > 1.6
    # Small kernels starve beside large ones under MPS, not the other way round.
    large, small = rates([known["gpt2:16"], light], MPS)
    assert large > 0.85
    assert small < 0.55


@pytest.mark.parametrize("discipline", [TIMESLICING, MPS])
def test_a_job_nobody_measured_is_the_worst_neighbour_and_the_worst_off(discipline: str) -> None:
    names = ("bert-base:32", "lstm:64", "gpt2:16", "resnet50:128", "dlrm:8192", "vit_b_16:64")
    measured = [load_shipped().known[name] for name in names]

    for job in measured:
        beside, own = rates([job, UNKNOWN], discipline)

        assert beside <= min(rates([job, other], discipline)[0] for other in measured)
        assert own <= min(rates([other, job], discipline)[0] for other in measured)


@pytest.mark.parametrize("discipline", [TIMESLICING, MPS])
def test_large_jobs_nobody_paired_still_get_about_a_fair_share(discipline: str) -> None:
    for name in ("vgg19:128", "bert-base:128", "resnet50:256"):
        for count in (2, 3, 4):
            speeds = rates([load_shipped().known[name]] * count, discipline)

            assert 0.9 < speeds.sum() < 1.5


def test_features_are_found_by_model_and_the_nearest_batch() -> None:
    model = load_shipped()

    assert model.features("bert-base", 30) == model.known["bert-base:32"]
    assert model.features("bert-base", 100_000) == model.known["bert-base:128"]
    assert model.features("bert-base") == model.known["bert-base:128"]
    assert model.features("nobody's") is UNKNOWN


def test_memory_fits_with_a_context_for_each_job() -> None:
    job = Features(busy=0.5, mem_gb=10.0)

    assert fits_memory([job, job], 21.0)
    assert not fits_memory([job, job], 20.9)
    assert fits_memory([UNKNOWN], 1.0)
    assert not fits_memory([job, UNKNOWN], 1e6)


def test_a_model_survives_being_written_and_read() -> None:
    model = load_shipped()

    again = parse(dump(model))

    assert again.known == model.known
    assert again.errors == model.errors
    group = [model.known["gpt2:16"], model.known["lstm:64"], UNKNOWN]
    for discipline in (TIMESLICING, MPS):
        np.testing.assert_array_equal(
            again.rates(group, discipline), model.rates(group, discipline)
        )


def test_the_shipped_model_states_its_errors() -> None:
    for discipline in (TIMESLICING, MPS):
        assert 0.0 < load_shipped().errors[discipline]["other_half_of_pairs"] <= 0.12


def test_features_are_hashable_and_cannot_change() -> None:
    job = Features(busy=0.5)

    assert hash(job) == hash(Features(busy=0.5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.busy = 0.6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [("busy", 43.0), ("fill", -0.1), ("bandwidth", math.nan), ("step_s", 0.0), ("mem_gb", -1.0)],
)
def test_features_that_cannot_be_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidConfig, match=field):
        Features(**{field: value})


def test_an_unknown_discipline_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="timeslicing") as error:
        rates([UNKNOWN, UNKNOWN], "timeslice")

    assert "mps" in error.value.hint


@pytest.mark.parametrize("text", ["", "{}", '{"laws": 3, "known": {}, "errors": {}}', "[]"])
def test_a_file_that_is_no_model_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="not an interference model"):
        parse(text)
