"""Laws of circles, scores and shifts, over drawn jobs and links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weft_papers.cassini.circles import (
    MOST_TURNS,
    Circle,
    choose_grid,
    measure_circle,
    round_periods,
)
from weft_papers.cassini.compatibility import (
    find_groups,
    fit_link,
    has_loop,
    merge_links,
    score_link,
    unite_shifts,
)

CAPACITY = 50.0
PERIODS = (0.072, 0.144, 0.216)  # samples of their circles fall on whole milliseconds


@st.composite
def circles(draw: st.DrawFn, periods: tuple[float, ...] = PERIODS) -> Circle:
    period = draw(st.sampled_from(periods))
    ticks = round(period * 1000)
    begin = draw(st.integers(0, ticks - 1))
    length = draw(st.integers(1, ticks - begin))
    gbps = draw(st.sampled_from((10.0, 25.0, 40.0, 50.0)))
    return Circle(period, ((begin / 1000, length / 1000, gbps),))


groups = st.lists(circles(), min_size=2, max_size=5).map(tuple)


@settings(examples(60))
@given(groups)
def test_a_score_is_at_most_one_and_no_worse_than_unshifted(jobs: tuple[Circle, ...]) -> None:
    fit = fit_link(jobs, CAPACITY)

    assert fit.unshifted - 1e-9 <= fit.score <= 1.0
    assert all(0.0 <= t < c.period_s for t, c in zip(fit.shifts_s, jobs, strict=True))
    assert score_link(jobs, fit.shifts_s, CAPACITY) == pytest.approx(fit.score)


@settings(examples(60))
@given(groups, st.integers(0, 400))
def test_turning_all_jobs_together_changes_nothing(jobs: tuple[Circle, ...], turn: int) -> None:
    step = measure_circle([c.period_s for c in jobs]) / 720
    shifts = tuple(step * j for j in range(len(jobs)))
    moved = tuple(shift + step * turn for shift in shifts)

    before = score_link(jobs, shifts, CAPACITY, 720)

    assert score_link(jobs, moved, CAPACITY, 720) == pytest.approx(before)


@settings(examples(60))
@given(st.lists(circles((0.144,)), min_size=3, max_size=3).map(tuple))
def test_one_more_job_never_raises_the_best_score(jobs: tuple[Circle, ...]) -> None:
    fewer = fit_link(jobs[:2], CAPACITY, 72)

    assert fit_link(jobs, CAPACITY, 72).score <= fewer.score + 1e-9


@settings(examples(60))
@given(st.data())
def test_one_shift_a_job_keeps_the_score_of_every_link(data: st.DataObject) -> None:
    """A drawn tree of links: each new link joins a job that is there to one or two new ones."""
    jobs = {"j0": data.draw(circles((0.144,)))}
    links: dict[str, tuple[str, ...]] = {}
    for i in range(data.draw(st.integers(1, 5))):
        new = [f"j{len(jobs) + k}" for k in range(data.draw(st.integers(1, 2)))]
        links[f"l{i}"] = (data.draw(st.sampled_from(sorted(jobs))), *new)
        jobs.update({name: data.draw(circles((0.144,))) for name in new})
    fits = {link: fit_link(tuple(jobs[j] for j in on), CAPACITY, 72) for link, on in links.items()}
    shifts = {link: dict(zip(links[link], fits[link].shifts_s, strict=True)) for link in links}

    united = unite_shifts({name: job.period_s for name, job in jobs.items()}, shifts)

    assert not has_loop(links)
    assert len(find_groups(links)) == 1
    assert united["j0"] == 0.0
    for link, on in links.items():
        at = [united[job] for job in on]
        score = score_link([jobs[job] for job in on], at, CAPACITY, 72)
        assert score == pytest.approx(fits[link].score)


@settings(examples(60))
@given(st.lists(st.floats(0.02, 2.0), min_size=1, max_size=5))
def test_a_circle_is_never_too_long_and_no_job_must_hurry(periods: list[float]) -> None:
    grid = choose_grid([periods])
    rounded = round_periods(periods, grid)

    assert measure_circle(rounded) <= MOST_TURNS * max(rounded) * (1 + 1e-9)
    for period, kept in zip(periods, rounded, strict=True):
        assert kept >= period - 0.5e-3 - 1e-9
        assert kept <= period * 1.05 + 0.5e-3 + 1e-9


@settings(examples(60))
@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.sets(st.sampled_from(("l1", "l2", "l3", "l4")), min_size=1),
        min_size=1,
    )
)
def test_merged_links_still_hold_back_everybody_whom_the_others_would(
    crossed: dict[str, set[str]],
) -> None:
    capacity = {"l1": 50.0, "l2": 50.0, "l3": 100.0, "l4": 25.0}

    kept = merge_links(crossed, capacity)

    for link in capacity:
        on = {job for job, links in crossed.items() if link in links}
        if len(on) > 1:
            assert any(on <= set(kept[k]) and capacity[k] <= capacity[link] for k in kept)
    assert all(len(jobs) > 1 for jobs in kept.values())


def test_two_links_with_the_same_jobs_are_no_loop_once_merged() -> None:
    crossed = {"a": ["up1", "up2"], "b": ["up1", "up2"]}
    capacity = {"up1": 100.0, "up2": 50.0}

    assert has_loop({"up1": ("a", "b"), "up2": ("a", "b")})
    assert merge_links(crossed, capacity) == {"up2": ("a", "b")}


def test_three_jobs_on_three_links_in_a_ring_are_a_loop() -> None:
    ring = {"l1": ("a", "b"), "l2": ("b", "c"), "l3": ("c", "a")}

    assert has_loop(ring)
    assert not has_loop({link: ring[link] for link in ("l1", "l2")})
