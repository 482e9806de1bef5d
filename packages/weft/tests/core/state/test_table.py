"""Active jobs as columns: rows, growth, meters and picking."""

from __future__ import annotations

import math

import numpy as np
import pytest

from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice, Stage, Tier
from weft.core.state.cells import TableColumns
from weft.core.state.table import COLUMNS, JobTable


def job(name: str, gpus: int = 1, share: float = 1.0) -> Job:
    return Job(JobId(name), submitted=7.0, demand=Demand(gpus, share=share))


def table_of(*names: str, capacity: int = 64) -> JobTable:
    table = JobTable(capacity)
    for seq, name in enumerate(names):
        table.add(job(name, gpus=seq + 1), seq)
    return table


def test_a_new_row_shows_what_was_asked_for() -> None:
    table = JobTable()
    asked = Job(
        JobId("a"), 7.0, Demand(4, min=2, max=8, share=0.5), priority=3.0, tier=Tier.OPPORTUNISTIC
    )

    row = table.add(asked, seq=11)

    shown = {name: table.get(row, which) for name, which in COLUMNS.items()}
    known = {"seq": 11, "submitted": 7, "gpus": 4, "min": 2, "max": 8, "need": 2, "priority": 3}
    known["preemptible"] = 1
    rest = dict.fromkeys(COLUMNS, 0.0)
    assert shown == {**rest, **known, "tier": 1, "stage": Stage.PENDING, "started": math.inf}
    assert table.allocations == [None]


def test_named_columns_are_the_columns_of_that_name() -> None:
    table = table_of("a", "b")
    for name in ("seq", "submitted", "gpus", "need", "held", "started"):
        table.set(1, COLUMNS[name], 42.0)

        assert getattr(table, name) is not None
        assert np.array_equal(getattr(table, name), table.column(COLUMNS[name]))
        assert getattr(table, name)[1] == 42.0


def test_rows_move_up_when_an_earlier_job_leaves() -> None:
    table = table_of("a", "b", "c", "d")

    table.remove(table.row(JobId("b")))

    assert [table.row(JobId(name)) for name in "acd"] == [0, 1, 2]
    assert [j.id for j in table.jobs] == ["a", "c", "d"]
    assert table.gpus.tolist() == [1.0, 3.0, 4.0]
    assert table.seq.tolist() == [0.0, 2.0, 3.0]
    assert len(table) == 3


def test_a_job_that_left_is_unknown() -> None:
    table = table_of("a", "b")

    table.remove(1)

    assert JobId("a") in table
    assert JobId("b") not in table
    with pytest.raises(KeyError):
        table.row(JobId("b"))


def test_removing_the_last_and_only_row_leaves_an_empty_table() -> None:
    table = table_of("a")

    table.remove(0)

    assert (len(table), table.jobs, table.allocations) == (0, [], [])
    assert table.seq.size == 0


def test_a_row_of_a_reused_slot_has_no_trace_of_its_predecessor() -> None:
    table = table_of("a")
    table.meters_on(0, 5.0, 3.0)
    table.set(0, TableColumns.RETRIES, 9.0)
    table.remove(0)

    table.add(job("b"), 1)

    assert table.get(0, TableColumns.RETRIES) == 0.0
    assert table.ran(100.0).tolist() == [0.0]
    assert table.started.tolist() == [math.inf]


def test_the_table_grows_and_keeps_everything() -> None:
    names = [f"j{i}" for i in range(37)]

    table = table_of(*names, capacity=2)

    assert table.gpus.tolist() == [float(i + 1) for i in range(37)]
    assert [table.row(JobId(name)) for name in names] == list(range(37))


def test_meters_grow_linearly_while_a_job_executes() -> None:
    table = table_of("a", "b")

    table.meters_on(0, 10.0, gpus=4.0)

    assert table.ran(16.0).tolist() == [6.0, 0.0]
    assert table.service(16.0).tolist() == [24.0, 0.0]


def test_meters_keep_their_reading_while_a_job_waits_and_go_on_later() -> None:
    table = table_of("a")
    table.meters_on(0, 10.0, gpus=4.0)
    table.meters_off(0, 15.0)

    assert (table.ran(99.0)[0], table.service(99.0)[0]) == (5.0, 20.0)

    table.meters_on(0, 100.0, gpus=1.0)
    assert (table.ran(103.0)[0], table.service(103.0)[0]) == (8.0, 23.0)


def test_turning_meters_off_twice_changes_nothing() -> None:
    table = table_of("a")
    table.meters_on(0, 0.0, gpus=2.0)
    table.meters_off(0, 5.0)

    table.meters_off(0, 8.0)

    assert (table.ran(9.0)[0], table.service(9.0)[0]) == (5.0, 10.0)


def test_the_first_start_is_remembered_through_later_ones() -> None:
    table = table_of("a")
    table.meters_on(0, 10.0, gpus=1.0)
    table.meters_off(0, 20.0)

    table.meters_on(0, 30.0, gpus=1.0)

    assert table.started.tolist() == [10.0]


def test_picked_rows_keep_order_lookups_and_values() -> None:
    table = table_of("a", "b", "c", "d")
    held = Allocation((Slice(NodeId("n"), (0,)),))
    table.allocations[3] = held

    part = table.pick(np.array([False, True, False, True]))

    assert [j.id for j in part.jobs] == ["b", "d"]
    assert (part.row(JobId("b")), part.row(JobId("d"))) == (0, 1)
    assert JobId("a") not in part
    assert part.allocations == [None, held]
    assert part.gpus.tolist() == [2.0, 4.0]


def test_a_picked_table_is_a_copy() -> None:
    table = table_of("a", "b")

    part = table.pick(np.array([True, True]))
    part.set(0, TableColumns.HELD, 5.0)
    part.remove(1)

    assert table.held.tolist() == [0.0, 0.0]
    assert len(table) == 2


def test_nothing_can_be_picked() -> None:
    part = table_of("a").pick(np.array([False]))

    assert len(part) == 0
    assert part.add(job("z"), 5) == 0


def test_columns_are_numbered_without_gaps() -> None:
    assert sorted(COLUMNS.values()) == list(range(len(COLUMNS)))


@pytest.mark.parametrize("few", [0, 64])
def test_who_waits_is_kept_as_rows_come_go_and_hold_devices(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.core.state.table.FEW_WAITING", few)
    table = table_of("a", "b", "c", "d")

    table.set(0, TableColumns.HELD, 2.0)
    table.remove(1)
    table.set(2, TableColumns.HELD, 1.0)
    table.release(0, now=9.0)
    part = table.pick(np.array([True, True, False]))

    assert (table.waiting, table.waiting_rows().tolist()) == (2, [0, 1])
    assert (part.waiting, part.waiting_rows().tolist()) == (2, [0, 1])
    assert table.waiting_rows().tolist() == np.flatnonzero(table.held == 0.0).tolist()


@pytest.mark.parametrize("long_move", [0, 2000])
@pytest.mark.parametrize("capacity", [1, 64])
def test_rows_stay_in_order_whoever_leaves(
    long_move: int, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.core.state.cells.LONG_MOVE", long_move)
    rng, table, expected = np.random.default_rng(3), JobTable(capacity), list[int]()
    for seq in range(300):
        table.add(job(f"j{seq}", gpus=1 + seq % 7), seq)
        expected.append(seq)
        for _ in range(int(rng.integers(0, 3)) if len(expected) > 3 or seq % 50 == 49 else 0):
            if expected:
                gone = int(rng.integers(len(expected)))
                table.remove(gone)
                del expected[gone]

        assert table.seq.tolist() == expected
        assert table.gpus.tolist() == [1 + seq % 7 for seq in expected]
        assert [table.row(JobId(f"j{seq}")) for seq in expected] == list(range(len(expected)))


def test_a_promised_row_is_of_its_next_attempt_and_waits_no_more() -> None:
    table = table_of("a", "b", "c")
    on = Allocation((Slice(NodeId("n"), (0, 1)),))

    attempt = table.hold(0, on)

    assert (attempt, table.find_attempt(JobId("a"), 1), table.find_attempt(JobId("a"), 2)) == (
        1,
        0,
        None,
    )
    assert (table.find_attempt(JobId("b"), 0), table.find_attempt(JobId("z"), 1)) == (None, None)
    assert (table.held.tolist(), table.get(0, TableColumns.STAGE)) == (
        [2.0, 0.0, 0.0],
        Stage.STARTING,
    )
    assert (table.first_waiting(), table.waiting) == (1, 2)


def test_meters_of_one_row_are_those_of_its_columns() -> None:
    table = JobTable()
    row = table.add(job("a"), 0, now=7.0)
    table.meters_on(row, 10.0, gpus=3.0)

    during = table.meters(row, 15.0)
    table.meters_off(row, 20.0)

    assert during == (5.0, 15.0)
    assert table.meters(row, 30.0) == (table.ran(30.0)[row], table.service(30.0)[row]) == (10, 30)
