"""The cluster over time: sums that agree with the accounts, in bounded space."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.events import event as facts
from weft.core.events.report import Report
from weft.core.model.cluster import Node, parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.spec.part_spec import PartSpec
from weft.runtime.records.cluster_history import MANY_ROWS, RINGS, ClusterHistory, Key, Measure
from weft.runtime.records.job_records import ALL
from weft.runtime.records.ledger import Ledger

NODES = parse_cluster("1x4:a100+1x4:h200").nodes
FIRST, SECOND = NODES
BEGIN = 1_000_000.0
DAY_S = 86_400.0


def fold(ledger: Ledger, *rows: tuple[float, facts.Event]) -> None:
    """As a service does: the history first."""
    for at, event in rows:
        ledger.history.fold(at, event)
        ledger.fold(at, event)


def begun() -> Ledger:
    ledger = Ledger()
    fold(ledger, *((BEGIN, facts.NodeUp(node)) for node in NODES))
    return ledger


def submitted(name: str, tenant: str = "red", gpus: int = 2) -> facts.Submitted:
    return facts.Submitted(Job(JobId(name), demand=Demand(gpus), tenant=tenant))


def given_to(number: int, name: str, node: Node, gpus: int = 2) -> facts.Decided:
    return facts.Decided(number, {JobId(name): Allocation((Slice(node.id, tuple(range(gpus))),))})


def means(
    history: ClusterHistory, key: Key, column: Measure, since: float, until: float
) -> list[float]:
    stretch = history.windows_between(since, until)
    sums = stretch.sums[:, stretch.keys.index(key), column]
    return [total / s for total, s in zip(sums.tolist(), stretch.seconds, strict=True)]


def total(history: ClusterHistory, key: Key, column: Measure) -> float:
    stretch = history.windows_between(0.0, history.at)
    return float(stretch.sums[:, stretch.keys.index(key), column].sum())


def test_gpus_queue_and_measurements_are_noted_in_each_window() -> None:
    ledger = begun()
    job = JobId("a")
    fold(
        ledger,
        (BEGIN, submitted("a")),
        (BEGIN + 10.0, given_to(1, "a", FIRST)),
        (BEGIN + 10.0, facts.Started(job, 1)),
        (BEGIN + 20.0, facts.Reported(job, 1, Report(step_s=0.5, power_w=300.0, sm=0.5))),
        (BEGIN + 40.0, facts.Finished(job, 1)),
    )
    ledger.history.advance(BEGIN + 60.0)

    past, queue, used = ledger.history, ("red", ""), ("red", "a100")
    assert means(past, queue, Measure.WAITING, BEGIN, BEGIN + 59.0) == [1, 0, 0, 0, 0, 0]
    assert means(past, queue, Measure.WANTED, BEGIN, BEGIN + 59.0) == [2, 0, 0, 0, 0, 0]
    assert means(past, used, Measure.USED, BEGIN, BEGIN + 59.0) == [0, 2, 2, 2, 0, 0]
    assert means(past, used, Measure.STEPS, BEGIN, BEGIN + 59.0) == [0, 0, 2, 2, 0, 0]
    assert means(past, used, Measure.POWER, BEGIN, BEGIN + 59.0) == [0, 0, 300, 300, 0, 0]
    assert means(past, used, Measure.BUSY, BEGIN, BEGIN + 59.0) == [0, 0, 1, 1, 0, 0]
    assert means(past, used, Measure.MEASURED, BEGIN, BEGIN + 59.0) == [0, 0, 2, 2, 0, 0]
    assert (total(past, queue, Measure.STARTED), total(past, queue, Measure.WAITED)) == (1, 10)
    assert means(past, (ALL, "a100"), Measure.ALL, BEGIN, BEGIN + 59.0) == [4.0] * 6


Steps = list[tuple[float, str, int]]
STEP = st.tuples(
    st.sampled_from([0.0, 0.3, 7.0, 61.0, 4000.0, 2.2 * DAY_S]),
    st.sampled_from(["submit", "start", "end", "fail", "share", "node"]),
    st.integers(0, 3),
)


def lived_through(steps: Steps, ledger: Ledger) -> tuple[Ledger, float]:
    """Jobs of two tenants that start on some GPU and end again."""
    at, known = BEGIN, defaultdict[int, int](int)
    for wait_s, what, which in steps:
        at += wait_s
        job, name = JobId(f"j{which}"), f"j{which}"
        record = ledger.jobs.live.get(job)
        tenant, node = ("red", "blue")[which % 2], NODES[which // 2]
        if what == "node":
            up = facts.NodeUp(node) if known[which] % 2 else facts.NodeDown(node.id, drained=True)
            known[which] += 1
            fold(ledger, (at, up))
        elif record is None:
            fold(ledger, (at, submitted(name, tenant)))
        elif record.outcome:
            continue
        elif record.running is None:
            fold(ledger, (at, given_to(1, name, node, 1 + which)))
            fold(ledger, (at + 1.0, facts.Started(job, ledger.jobs.live[job].attempt)))
            at += 1.0
        elif what == "share" and record.allocation is not None:
            sharing = replace(record.allocation.sharing, share=0.5)
            fold(ledger, (at, facts.Decided(2, {job: replace(record.allocation, sharing=sharing)})))
        elif what == "fail":
            fold(ledger, (at, facts.Failed(job, record.running, "died", retry=True, code=1)))
        elif what == "end":
            fold(ledger, (at, facts.Finished(job, record.running)))
    return ledger, at


@given(st.lists(STEP, max_size=25))
def test_gpu_hours_are_those_of_the_accounts(steps: Steps) -> None:
    ledger, at = lived_through(steps, begun())
    ledger.history.advance(at)

    used = ledger.used(at)
    stretch = ledger.history.windows_between(0.0, at)
    if at - BEGIN < 31 * DAY_S:
        for tenant in ("red", "blue"):
            rows = [row for row, key in enumerate(stretch.keys) if key[0] == tenant]
            hours = stretch.sums[:, rows, Measure.USED].sum() / 3600.0
            due = used[tenant].gpu_s / 3600.0 if tenant in used else 0.0
            assert hours == pytest.approx(due, rel=1e-6, abs=1e-6)


@given(st.lists(STEP, max_size=20), st.lists(STEP, max_size=10))
def test_what_was_saved_goes_on_as_if_nothing_had_happened(before: Steps, after: Steps) -> None:
    ledger, _ = lived_through(before, begun())
    saved = json.loads(json.dumps(ledger.history.save()))
    again = ClusterHistory()

    again.load(saved)

    assert again.save() == ledger.history.save()
    for at, event in ((ledger.history.at + wait, facts.Woken()) for wait, _, _ in after):
        again.fold(at, event)
        ledger.history.fold(at, event)
    assert again.save() == ledger.history.save()


def test_a_month_takes_bounded_space_and_a_long_absence_little_time() -> None:
    ledger = begun()
    fold(ledger, (BEGIN, submitted("a")), (BEGIN, given_to(1, "a", FIRST)))
    fold(ledger, (BEGIN, facts.Started(JobId("a"), 1)))

    for day in (1, 2, 33, 400):
        ledger.history.advance(BEGIN + day * DAY_S)

    rings = ledger.history.save()["rings"]
    assert [len(windows) for *_, windows in rings] == [most - 1 for _, most in RINGS]
    month = ledger.history.windows_between(ledger.history.at - 31.0 * DAY_S, ledger.history.at)
    row = month.keys.index(("red", "a100"))
    assert month.sums[:, row, Measure.USED].sum() == pytest.approx(2.0 * sum(month.seconds))


def test_a_stretch_has_the_shortest_windows_that_reach_back_so_far() -> None:
    ledger = begun()
    ledger.history.advance(BEGIN + 40.0 * DAY_S)
    at = ledger.history.at

    widths = [
        ledger.history.windows_between(at - back, at).width_s
        for back in (3000.0, 11.0 * 3600.0, 3.0 * DAY_S, 30.0 * DAY_S)
    ]
    assert widths == [width for width, _ in RINGS]
    assert len(ledger.history.windows_between(at - 3000.0, at).begins) <= 400
    assert begun().history.windows_between(0.0, at).width_s == RINGS[0][0]  # all that there is


def test_drained_and_reserved_gpus_are_out_of_use_for_that_long() -> None:
    ledger = begun()
    maintenance = f"{SECOND.id}:0-1@{BEGIN + 30.0:.0f}-{BEGIN + 50.0:.0f}"
    windows = {"windows": {"repair": maintenance}}
    fold(
        ledger,
        (BEGIN, facts.PolicyChanged(PartSpec("fifo", wrappers=(PartSpec("reserve", windows),)))),
        (BEGIN + 10.0, facts.NodeDown(FIRST.id, drained=True, by="ann", why="a fan")),
        (BEGIN + 40.0, facts.NodeUp(FIRST, "bob")),
    )
    past = ledger.history
    past.advance(BEGIN + 70.0)

    out = [means(past, (ALL, kind), Measure.OUT, BEGIN, past.at - 1) for kind in ("a100", "h200")]
    assert out == [[0, 4, 4, 4, 0, 0, 0], [0, 0, 0, 2, 2, 0, 0]]
    assert [(mark.what, mark.about, mark.by, mark.why) for mark in past.marks] == [
        ("policy", "fifo", "", ""),
        ("drained", FIRST.id, "ann", "a fan"),
        ("back", FIRST.id, "bob", ""),
    ]
    assert not past.out


def test_gpus_that_were_drained_or_set_aside_are_named_with_who_and_why() -> None:
    ledger = begun()

    def rules(at: float, windows: dict[str, str], by: str = "", why: str = "") -> None:
        wrappers = (PartSpec("reserve", {"windows": windows}),) if windows else ()
        policy = PartSpec("las", wrappers=wrappers)
        fold(ledger, (BEGIN + at, facts.PolicyChanged(policy, reason=why, by=by)))

    gpu = f"{FIRST.id}:3"
    rules(1.0, {f"aside:{gpu}": gpu}, why="it fell off the bus")
    assert ledger.history.out[gpu].why == "it fell off the bus"
    rules(2.0, {f"aside:{gpu}": gpu, "drain:n": f"~{SECOND.id}"}, "ann", "moves racks")
    rules(3.0, {}, "bob")

    marks = [(m.what, m.about, m.node, m.by, m.why) for m in ledger.history.marks][1:]
    assert ledger.history.marks[0].about == gpu or ledger.history.marks[0].what == "aside"
    assert marks == [
        ("policy", "las", "", "", "it fell off the bus"),
        ("drained", "n", "n", "ann", "moves racks"),
        ("back", gpu, FIRST.id, "bob", ""),
        ("back", "n", "n", "bob", ""),
    ]
    assert not ledger.history.out


def test_rows_of_tenants_that_are_long_gone_are_used_by_others() -> None:
    ledger = begun()
    for day in range(0, 33 * 3 * MANY_ROWS, 33):
        at, tenant = BEGIN + day * DAY_S, f"t{day}"
        fold(ledger, (at, submitted(tenant, tenant)), (at + 5.0, facts.Cancelled(JobId(tenant))))

    assert len(ledger.history.save()["keys"]) == MANY_ROWS


def test_a_snapshot_without_a_history_begins_one_with_what_runs() -> None:
    ledger = begun()
    fold(ledger, (BEGIN, submitted("a")), (BEGIN, given_to(1, "a", FIRST)))
    fold(ledger, (BEGIN, facts.Started(JobId("a"), 1)), (BEGIN, submitted("b", "blue")))
    past = ClusterHistory()

    past.begin_with(BEGIN + 100.0, ledger.jobs.live.values(), NODES)
    past.advance(BEGIN + 200.0)

    assert total(past, ("red", "a100"), Measure.USED) == 200.0
    assert total(past, ("blue", ""), Measure.WAITING) == 100.0
    assert total(past, (ALL, "h200"), Measure.ALL) == 400.0


def test_what_is_counted_first_of_a_tenant_is_not_lost_where_the_tables_grow() -> None:
    past = ClusterHistory()
    past.advance(BEGIN)

    for number in range(40):
        past.count((f"t{number}", ""), Measure.FAILED)

    past.advance(BEGIN + 1.0)
    assert [total(past, (f"t{number}", ""), Measure.FAILED) for number in range(40)] == [1.0] * 40


def test_what_was_counted_in_the_open_window_keeps_its_row() -> None:
    history, tenants = begun().history, [f"t{number}" for number in range(2 * MANY_ROWS)]
    for tenant in tenants:
        history.count((tenant, ""), Measure.FAILED)
    history.advance(BEGIN + 1.0)

    assert {total(history, (tenant, ""), Measure.FAILED) for tenant in tenants} == {1.0}
