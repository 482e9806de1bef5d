from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from weft_train.data.sampling import (
    Cell,
    StepBatch,
    choose_step_size,
    count_steps,
    deal_cells,
    split,
)


def of_all(
    position: int, length: int, batch: StepBatch, ranks: int, least: int = 1
) -> list[list[Cell]]:
    """Cells of every rank, a row each."""
    return [list(deal_cells(position, length, batch, rank, ranks, least)) for rank in range(ranks)]


sizes = st.integers(1, 9)


@given(st.integers(1, 400), st.lists(st.tuples(sizes, st.integers(1, 70), sizes), max_size=6))
def test_every_sample_is_dealt_once_however_the_job_is_resized(
    length: int, attempts: list[tuple[int, int, int]]
) -> None:
    position, seen = 0, Counter[int]()
    for ranks, total, per_gpu in [*attempts, (2, 16, 8)]:
        rows = of_all(position, length, split(total, ranks, per_gpu), ranks)
        steps = 3 if (ranks, total) != (2, 16) else length
        for row in rows:
            ended = 0
            for cell in row:
                if ended == steps:
                    break
                seen.update(range(cell.start, cell.stop))
                ended += cell.last
                position = max(position, cell.after)

    assert seen == Counter(range(length))


@given(st.integers(1, 300), sizes, st.integers(1, 64), sizes, st.integers(1, 3))
def test_all_ranks_step_together_and_weights_make_a_mean(
    length: int, ranks: int, total: int, per_gpu: int, least: int
) -> None:
    rows = of_all(0, length, split(total, ranks, per_gpu), ranks, least)

    shapes = [[(c.first, c.last, c.ragged, c.total, c.after) for c in row] for row in rows]
    assert all(shape == shapes[0] for shape in shapes)
    steps = {cell.after: cell.total for cell in rows[0]}
    for after, samples in steps.items():
        mine = [c for row in rows for c in row if c.after == after]
        assert sum(c.stop - c.start for c in mine) == samples
        assert abs(sum(c.weight for c in mine) - ranks) < 1e-9
        assert any(c.empty for c in mine) == mine[0].ragged
        if samples >= least:
            assert all(c.empty or c.stop - c.start >= least for c in mine)


def test_a_fitting_batch_is_dealt_evenly() -> None:
    (first, *_), (second, *_) = of_all(0, 100, StepBatch(10, 5), 2)

    assert (first.start, first.stop, first.weight) == (0, 5, 1.0)
    assert (second.start, second.stop, second.weight) == (5, 10, 1.0)


def test_a_small_rest_joins_the_step_before_it() -> None:
    assert choose_step_size(left=100, batch=32) == 32
    assert choose_step_size(left=47, batch=32) == 47
    assert choose_step_size(left=48, batch=32) == 32
    assert choose_step_size(left=16, batch=32) == 16


def test_what_does_not_fit_on_a_gpu_is_accumulated() -> None:
    assert split(128, ranks=4, max_per_gpu=64) == StepBatch(128, 32)
    assert split(128, ranks=1, max_per_gpu=50) == StepBatch(128, 43, 3)


@given(st.integers(1, 500), st.integers(1, 70))
def test_steps_are_counted_as_they_are_dealt(length: int, batch: int) -> None:
    dealt = [
        cell.after for cell in deal_cells(0, length, StepBatch(batch, batch), 0, 1) if cell.last
    ]

    assert count_steps(0, length, batch) == 0
    assert [count_steps(after, length, batch) for after in dealt] == [*range(1, len(dealt) + 1)]


def test_a_larger_step_counts_as_the_smaller_ones_in_it() -> None:
    assert [count_steps(at, 100, 10) for at in (10, 30, 37, 40, 95, 100)] == [1, 3, 3, 4, 9, 10]
