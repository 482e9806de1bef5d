"""Generators against the published numbers they were calibrated to."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Tier
from weft.core.model.trace import Trace
from weft.traces.draw.arrivals import bursts, times
from weft.traces.draw.params import family, job_types
from weft.traces.draw.recipe import Drawn, DrawSettings
from weft.traces.options import DrawRequest
from weft.traces.read import find, workload, workloads
from weft.traces.synthetic.calibrated import draw

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95)
# Seconds at those quantiles in the published distributions, then the mean.
PUBLISHED = {
    "philly": ((36, 108, 852, 3_200, 15_736, 67_293), 18_715),
    "helios_venus": ((17, 70, 209, 1_327, 18_310, 60_556), 13_621),
    "helios_earth": ((69, 147, 234, 820, 7_330, 15_054), 5_372),
    "helios_saturn": ((3, 32, 123, 891, 5_118, 14_253), 5_454),
    "helios_uranus": ((21, 72, 287, 1_304, 10_900, 38_936), 9_512),
    "pai": ((28, 91, 488, 3_116, 11_468, 22_864), 4_961),
    "itp": ((1_329, 3_845, 9_165, 16_151, 30_760, 59_328), 19_091),
    "acme_seren": ((7, 18, 134, 411, 1_347, 3_234), 1_479),
    "acme_kalos": ((22, 40, 126, 382, 1_549, 2_917), 1_337),
}
MEAN_GPUS = {"philly": 1.93, "helios_venus": 6.72, "helios_saturn": 3.81, "itp": 2.15}
BIG = DrawSettings(seed=4, jobs=30_000, load=0.8, gpus=10_000, limit=10_000)


@cache
def drawn_of(key: str) -> Drawn:
    """Many jobs of a family, drawn once for all that is asked of them."""
    return draw(BIG, key=key)


def lengths(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([truth.length for _, truth in trace])


@pytest.mark.parametrize("key", PUBLISHED)
def test_lengths_follow_the_published_distribution(key: str) -> None:
    drawn = drawn_of(key)

    expected, mean = PUBLISHED[key]
    quantiles = np.quantile(drawn.lengths, QUANTILES)
    assert quantiles == pytest.approx(expected, rel=0.12, abs=1.0)
    assert drawn.lengths.mean() == pytest.approx(mean, rel=0.3)


@pytest.mark.parametrize("key", MEAN_GPUS)
def test_sizes_and_states_follow_the_published_shares(key: str) -> None:
    drawn = drawn_of(key)

    states = Counter(drawn.states)
    source = family(key)
    assert np.mean([d.gpus for d in drawn.demands]) == pytest.approx(MEAN_GPUS[key], rel=0.06)
    for state, share in zip(source.states, source.state_p, strict=True):
        assert states[state] / BIG.jobs == pytest.approx(share, abs=0.01)


def test_a_few_users_own_most_jobs() -> None:
    drawn = drawn_of("helios_venus")

    counts = sorted(Counter(drawn.users).values(), reverse=True)
    top = sum(counts[: round(0.05 * 311)]) / BIG.jobs
    assert len(counts) <= 311
    assert 0.4 < top < 0.8


def test_one_user_stays_with_one_tenant() -> None:
    trace = find("philly", DrawRequest(seed=2))

    homes = {(job.user, job.tenant) for job, _ in trace}
    assert len(homes) == len({user for user, _ in homes})
    assert len({tenant for _, tenant in homes}) > 5


def test_arrivals_follow_the_hour_of_day_and_come_in_bursts() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    arrival = family("helios_venus").arrival
    span = 50 * 7 * 86_400.0

    when = np.sort(times(arrival, bursts(100_000, arrival.burst, rng), span, rng))

    hours = np.bincount((when // 3600 % 24).astype(int), minlength=24) / (when.size / 24)
    assert hours == pytest.approx(arrival.hours / arrival.hours.mean(), abs=0.25)
    assert np.mean(np.diff(when) < 1e-9) > 0.05
    per_hour = np.bincount((when // 3600).astype(int))
    assert per_hour.var() / per_hour.mean() > 10


@pytest.mark.parametrize("name", ["philly", "pai", "kalos", "gavel", "pollux"])
@pytest.mark.parametrize("load", [0.3, 1.5])
def test_the_drawn_jobs_offer_the_load_that_was_asked_for(name: str, load: float) -> None:
    trace = find(name, DrawRequest(seed=7, jobs=400, load=load, gpus=512))

    assert trace.load(512) == pytest.approx(load, rel=1e-3)


def test_sizes_that_do_not_fit_are_drawn_again() -> None:
    trace = find("venus", DrawRequest(seed=1, gpus=64, max_gpus=8))

    sizes = Counter(job.demand.gpus for job, _ in trace)
    assert set(sizes) <= {1, 2, 3, 4, 5, 6, 7, 8}
    assert sizes[1] / len(trace) == pytest.approx(0.5184 / 0.902, abs=0.06)


def test_more_load_leaves_sizes_and_lengths_alone() -> None:
    calm, busy = (find("philly", DrawRequest(seed=3, load=load)) for load in (0.5, 1.0))

    def shape(trace: Trace) -> Counter[tuple[int, float]]:
        return Counter((job.demand.gpus, truth.length) for job, truth in trace)

    assert shape(calm) == shape(busy)


def test_seeds_differ() -> None:
    assert find("philly", DrawRequest(seed=1)).jobs != find("philly", DrawRequest(seed=2)).jobs


def test_a_cluster_too_small_for_any_job_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="asks for at least"):
        find("pollux", DrawRequest(gpus=2))


@pytest.mark.parametrize("name", [n for n, _ in workloads() if n not in ("scale-1m",)])
def test_every_job_fits_the_default_cluster(name: str) -> None:
    part = workload(name)
    cluster = parse_cluster(part.cluster)

    trace = part.generate(DrawRequest(jobs=20 if name == "tiny-20" else 500))

    for job, _ in trace:
        kinds = job.demand.kinds or cluster.kinds
        assert job.demand.gpus <= max(cluster.gpus_by_kind[kind] for kind in kinds)


def test_pai_has_shares_gangs_and_kinds() -> None:
    trace = find("pai-syn-100k", DrawRequest(jobs=20_000))

    jobs = [job for job, _ in trace]
    assert np.mean([j.demand.share < 1 for j in jobs]) == pytest.approx(0.544, abs=0.02)
    assert np.mean([j.demand.gpus == 1 for j in jobs]) == pytest.approx(0.75, abs=0.03)
    assert max(j.demand.gpus for j in jobs) > 200
    assert np.mean([bool(j.demand.kinds) for j in jobs]) == pytest.approx(0.33, abs=0.03)


@pytest.mark.parametrize("cluster", ["seren", "kalos"])
def test_acme_jobs_follow_their_type(cluster: str) -> None:
    trace = find(cluster, DrawRequest(seed=1, jobs=20_000))

    shares = Counter(job.model for job, _ in trace)
    work = Counter[str]()
    for job, truth in trace:
        work[job.model] += job.demand.gpus * truth.length  # type: ignore[assignment]
    for kind in job_types(cluster):
        assert shares[kind.name] / len(trace) == pytest.approx(kind.share, abs=0.01)
    assert work["pretrain"] / sum(work.values()) > 0.55
    assert {t.state for j, t in trace if j.model == "pretrain"} <= {"cancelled", "failed"}


def test_gavel_draws_its_published_law() -> None:
    trace = find("gavel", DrawRequest(jobs=20_000))

    seconds = lengths(trace)
    assert seconds.min() >= 60 * 10**1.5 - 1
    assert seconds.max() <= 60 * 10**4
    assert np.mean(seconds < 60 * 10**3) == pytest.approx(0.8, abs=0.01)
    assert np.mean([job.priority == 5 for job, _ in trace]) == pytest.approx(0.2, abs=0.01)
    assert len({job.model for job, _ in trace}) == 26


def test_shockwave_draws_its_published_law() -> None:
    trace = find("shockwave", DrawRequest(jobs=20_000))

    seconds = lengths(trace)
    assert (seconds.min(), seconds.max()) == pytest.approx((720, 18_000))
    static = [t.length for j, t in trace if j.hints["mode"] == 0]
    assert static
    assert max(static) < 1000


def test_pollux_mixes_models_by_the_classes_of_philly() -> None:
    trace = find("pollux", DrawRequest(jobs=10_000))

    shares = Counter(job.model for job, _ in trace)
    assert shares["cifar10"] / len(trace) == pytest.approx(0.745, abs=0.01)
    assert all(job.batch and not job.demand.rigid for job, _ in trace)


def test_spot_services_hold_most_of_every_kind() -> None:
    trace = find("spot-hp-syn", DrawRequest(jobs=20_000))

    firm = [(j, t) for j, t in trace if j.tier is Tier.GUARANTEED]
    early = sum(j.demand.gpus for j, _ in firm if j.submitted <= 3600)
    assert early / 10_412 == pytest.approx(0.65, abs=0.02)
    assert min(t.length for _, t in firm) >= 86_400


def test_tiny_is_the_same_for_every_seed_and_covers_the_cases() -> None:
    first, two = find("tiny-20", DrawRequest(seed=1)), find("tiny-20", DrawRequest(seed=2))

    jobs = [job for job, _ in first]
    assert first.jobs == two.jobs
    assert sum(job.submitted == 0 for job in jobs) == 3
    assert any(job.demand.share < 1 for job in jobs)
    assert any(job.demand.kinds for job in jobs)
    assert any(truth.failures for _, truth in first)
    assert any(truth.state == "failed" for _, truth in first)
    assert max(job.demand.gpus for job in jobs) == 8
