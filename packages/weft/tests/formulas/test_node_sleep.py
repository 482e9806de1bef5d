"""Nodes that nobody will need sleep, by the worked example of CES."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.event import (
    Cancelled,
    Decided,
    Event,
    Finished,
    NodeDown,
    NodeUp,
    Started,
    Submitted,
    Suspended,
)
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.formulas.node_sleeper import (
    NodeSleeper,
    SleepDecision,
    SleepRule,
    daily_profile,
    sleep_nodes,
)

USED = np.array([50, 52, 53, 55, 54, 53, 52, 50, 46, 45, 44, 60, 58, 57, 57, 56], dtype=float)
SAID = np.array([50, 52, 53, 54, 54, 53, 51, 49, 46, 44, 44, 44, 50, 55, 54, 53], dtype=float)
RULE = SleepRule(look_back=3, look_ahead=3, fell=0.5, will_fall=1.0, fewest=2, spare=5, keep=4)


def predicted(i: int, length: int) -> Floats:
    return SAID[i : i + length]


def test_the_worked_example_comes_out_bin_by_bin() -> None:
    slept = sleep_nodes(USED, 80, RULE, predicted)

    assert slept.awake.tolist() == [55, 57, 58, 60, 59, 58, 58, 55, 55, 55, 55, 65, 65, 65, 65, 61]
    assert (80 - slept.awake).sum() == 334
    assert USED.sum() / (80 * 16) == pytest.approx(0.6578, abs=1e-4)
    assert slept.utilisation(USED) == pytest.approx(0.8893, abs=1e-4)
    assert (slept.wake_ups, slept.woken, slept.short) == (1, 10, 5.0)


def test_never_are_more_awake_than_there_are() -> None:
    assert sleep_nodes(USED, 62, RULE, predicted).awake.max() == 62


def test_the_daily_profile_does_not_look_ahead() -> None:
    rng = np.random.default_rng(0)
    used = rng.integers(10, 60, 144 * 4).astype(float)
    later = used.copy()
    later[400:] = 0.0

    assert daily_profile(used)(399, 60).tolist() == daily_profile(later)(399, 60).tolist()
    plain = daily_profile(used, follow=0.0)(300, 5)
    days = used[300 - 144 : 305 - 144] + used[300 - 288 : 305 - 288]
    assert plain.tolist() == np.floor(days / 2).tolist()
    followed = daily_profile(used, follow=1.0)(300, 5)
    assert followed[0] == used[300]


@pytest.mark.parametrize(
    "wrong", [{"look_back": 0}, {"look_ahead": 0}, {"fewest": 0}, {"spare": -1}, {"keep": -1}]
)
def test_bins_that_mean_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig, match="node sleep"):
        SleepRule(**wrong)
    assert SleepRule(1, 1, 0.0, 0.0, 1, 0, 0).keep == 0


def test_parameters_are_those_published_for_philly() -> None:
    assert SleepRule() == SleepRule(2, 30, 0.1, 0.0, 1, 20, 10)
    assert NodeSleeper(SleepRule()).boot_s == 300.0


# 14 are in use, 15 were on the mean of the two bins before, and 12 will be in the next two as in
# the next four: 14 and 4 to spare stay awake of 21.
AT = {"used": (10.0, 20.0, 14.0), "awake": 21, "kept": 5, "ahead": (13.0, 11.0, 12.0, 12.0)}
LIMITS = SleepRule(look_back=2, look_ahead=2, fell=1.0, will_fall=2.0, fewest=3, spare=4, keep=5)


@pytest.mark.parametrize(
    ("other", "awake"),
    [
        ({}, 18),
        ({"used": (99.0, 10.0, 20.0, 14.0)}, 18),
        ({"used": (99.0, 9.0, 20.0, 14.0)}, 21),  # fell by half a node
        ({"used": (0.0, 19.0, 10.0, 14.0)}, 21),
        ({"used": (20.0, 14.0)}, 21),  # two bins are not known yet
        ({"ahead": (14.0, 11.0, 12.0, 11.0)}, 21),  # will fall by 1.5
        ({"ahead": (13.0, 11.0, 12.0, 13.0)}, 21),  # and then rises
        ({"ahead": (13.0, 11.0, 12.0, 12.0, 99.0)}, 18),
        ({"ahead": ()}, 21),
        ({"awake": 20}, 20),  # two are not worth it
        ({"kept": 4}, 21),
        ({"awake": 14}, 14),
        ({"awake": 13}, 18),  # one is short
        ({"awake": 13, "nodes": 16}, 16),
        ({"awake": 13, "kept": 0, "ahead": ()}, 18),
    ],
)
def test_nodes_sleep_where_use_fell_and_will_stay_low(other: dict[str, object], awake: int) -> None:
    asked: dict[str, Any] = {"nodes": 40, **AT, **other}
    used, ahead = (np.array(asked.pop(name)) for name in ("used", "ahead"))

    assert LIMITS.awake(used, ahead=ahead, **asked) == awake


def test_the_daily_profile_is_the_mean_of_the_days_there_are() -> None:
    day = [float(bin_ % 7) for bin_ in range(144)]
    used = np.array([*day, *(2.0 * use for use in day), 30.0, 31.0])

    # Bins 289 to 291 were 1, 2, 3 on the first day, and twice that on the second.
    assert daily_profile(used, days=2, follow=0.0)(289, 3).tolist() == [1.0, 3.0, 4.0]
    assert daily_profile(used, days=1, follow=0.0)(289, 3).tolist() == [2.0, 4.0, 6.0]
    # 31 are in use where 1.5 were expected: 29.5 more everywhere, or half of that.
    assert daily_profile(used)(289, 3).tolist() == [31.0, 32.0, 34.0]
    assert daily_profile(used, follow=0.5)(289, 3).tolist() == [16.0, 17.0, 19.0]
    assert daily_profile(used)(150, 3).tolist() == [12.0, 6.0, 7.0]  # 6, 0 and 1, and 6 more
    # The first bin of all is remembered: 0, and then 1 and 2.
    assert daily_profile(used, follow=0.0)(144, 3).tolist() == [0.0, 1.0, 2.0]
    assert daily_profile(used)(3, 2).tolist() == [3.0, 3.0]  # nothing is known of a day before
    assert daily_profile(used)(143, 2).tolist() == [3.0, 3.0]
    assert len(daily_profile(used)(289, 200)) == 144


# ---- nodes of a cluster that is live

BIN_S, BOOT_S = 600.0, 300.0


class Cluster:
    """A cluster whose sleeper is asked at times; jobs of whole nodes of 8 GPUs come and go."""

    def __init__(self, text: str = "6x8:v100", **rule: Any) -> None:
        self.state = State(parse_cluster(text))
        self.sleeper = NodeSleeper(SleepRule(**rule), BOOT_S)
        self.names = [node.id for node in self.state.cluster.nodes]

    def at(self, now: float, *events: Event) -> SleepDecision:
        """What happens, and what is decided then."""
        for node in self.sleeper.take_booted(now):
            self.state.fold(now, NodeUp(node))
        for event in events:
            self.state.fold(now, event)
        turn = self.sleeper.step(now, self.state)
        for node in turn.sleep:
            self.state.fold(now, NodeDown(node.id, drained=True))
        return turn

    def runs(self, name: str, *nodes: int) -> tuple[Event, ...]:
        """A job that starts on whole nodes."""
        job = Job(JobId(name), demand=Demand(8 * len(nodes)))
        at = [self.state.cluster.index[self.names[node]] for node in nodes]
        on = Allocation(tuple(self.state.free.slice_of(node, 0xFF) for node in at))
        return Submitted(job), Decided(1, {job.id: on}), Started(job.id, 1)


def waits(name: str, gpus: int) -> Event:
    return Submitted(Job(JobId(name), demand=Demand(gpus)))


def numbers(names: list[NodeId], nodes: tuple[object, ...]) -> list[int]:
    return [names.index(node.id) for node in nodes]  # type: ignore[attr-defined]


def test_who_was_idle_for_longest_sleeps_and_who_slept_for_longest_wakes() -> None:
    there = Cluster("4x8:v100", spare=1)
    slept = [there.at(0.0, *there.runs("both", 0, 1)), there.at(BIN_S)]
    slept += [there.at(700.0, Finished(JobId("both"), 1)), there.at(2 * BIN_S)]
    again = there.at(3 * BIN_S)

    # Two were in use: three stay awake. In the third bin none was: of n0, n1 and n3 one stays.
    assert [numbers(there.names, turn.sleep) for turn in slept] == [[], [2], [], []]
    assert numbers(there.names, again.sleep) == [3, 0]
    assert there.sleeper.node_seconds(3 * BIN_S + 10.0) == 1210.0 + 2 * 10.0

    woken = there.at(1900.0, waits("a", 8), waits("b", 8))

    # One node short, and one to spare; both jobs are delayed by a boot.
    assert numbers(there.names, woken.wake) == [2, 3]
    assert (there.sleeper.wake_ups, there.sleeper.woken) == (1, 2)
    assert there.sleeper.delay_s == 2 * BOOT_S
    assert there.sleeper.node_seconds(2000.0) == 1300.0 + 100.0 + 200.0
    assert there.sleeper.next_at(1900.0) == 2200.0
    assert there.sleeper.take_booted(2199.0) == []
    assert there.at(2150.0) == SleepDecision()  # what boots is enough
    assert numbers(there.names, tuple(there.sleeper.take_booted(2200.0))) == [2, 3]
    assert there.sleeper.next_at(2200.0) == 2400.0
    assert not there.sleeper.booting


def test_a_job_that_needs_more_than_what_boots_wakes_more() -> None:
    there = Cluster("6x8:v100", spare=0)
    there.at(0.0, *there.runs("a", 0))
    assert len(there.at(BIN_S).sleep) == 5

    first = there.at(700.0, waits("b", 4))
    more = there.at(800.0, waits("c", 20))

    # 4 GPUs are one node, 24 are three, of which one boots.
    assert [len(turn.wake) for turn in (first, more)] == [1, 2]
    assert there.sleeper.wake_ups == 2


def test_an_idle_cluster_sleeps_but_for_what_is_to_spare_and_wakes_by_its_largest_nodes() -> None:
    there = Cluster("3x4:v100+3x8:v100", spare=2)
    there.at(0.0)

    assert len(there.at(BIN_S).sleep) == 4
    # 20 GPUs are three nodes of 8, two are idle: one is short, and two are to spare.
    assert len(there.at(700.0, waits("a", 20)).wake) == 3


def test_nobody_wakes_a_node_for_a_job_that_is_suspended() -> None:
    there = Cluster("2x8:v100", spare=0)
    there.at(0.0, *there.runs("a", 0))
    there.at(BIN_S)

    assert not there.at(700.0, waits("b", 8), Suspended(JobId("b"))).wake
    assert there.at(800.0, waits("c", 8)).wake


@pytest.mark.parametrize(
    ("cluster", "kinds"), [("1x8:t4+3x4:k80", ["k80"] * 2), ("2x8:t4", ["t4"])]
)
def test_the_last_of_a_kind_stays_awake(cluster: str, kinds: list[str]) -> None:
    there = Cluster(cluster, spare=0)
    there.at(0.0)

    slept = there.at(BIN_S).sleep

    assert [node.kind for node in slept] == kinds


def test_what_sleeping_gpus_would_have_drawn_is_counted_by_kind() -> None:
    there = Cluster("2x8:t4+2x4:k80+2x1:other", spare=0)
    there.at(0.0)

    assert len(there.at(BIN_S).sleep) == 3
    assert there.sleeper.joules(BIN_S + 50.0) == (8 * 10.0 + 4 * 30.0) * 50.0
    there.at(700.0, waits("all", 99))
    assert there.sleeper.joules(5000.0) == (8 * 10.0 + 4 * 30.0) * 100.0


def test_half_used_nodes_are_in_use_and_a_bin_counts_at_its_peak() -> None:
    there = Cluster("6x8:v100", spare=0)
    half = Job(JobId("half"), demand=Demand(4))
    on = Allocation((there.state.free.slice_of(0, 0x0F),))
    there.at(0.0, Submitted(half), Decided(1, {half.id: on}), Started(half.id, 1))
    there.at(100.0, *there.runs("b", 1, 2))
    there.at(200.0, Finished(JobId("b"), 1))

    # One was in use at first and one at last, three in between; a job that waits needs a fourth.
    assert numbers(there.names, there.at(BIN_S).sleep) == [3, 4, 5]
    assert numbers(there.names, there.at(2 * BIN_S).sleep) == [1, 2]


def test_after_an_hour_nodes_sleep_by_the_rule() -> None:
    there = Cluster("9x8:v100", look_back=2, look_ahead=3, spare=1, keep=3)
    there.at(0.0, *there.runs("wide", 0, 1, 2, 3), *there.runs("thin", 4), *there.runs("last", 5))
    asleep = [len(there.at(i * BIN_S).sleep) for i in range(1, 9)]
    there.at(8.5 * BIN_S, Finished(JobId("wide"), 1))
    there.at(8.6 * BIN_S, Finished(JobId("thin"), 1))
    asleep += [len(there.at(i * BIN_S).sleep) for i in range(9, 19)]

    # Six in use: seven awake. Five fewer in the tenth bin, which fell below the mean of two before.
    assert asleep == [2, *[0] * 8, 5, *[0] * 8]

    # Somebody wakes six, and does not want them after all: no node sleeps in the next three bins.
    assert len(there.at(18.5 * BIN_S, waits("six", 48)).wake) == 6
    there.at(18.6 * BIN_S, Cancelled(JobId("six")))
    assert [len(there.at(i * BIN_S).sleep) for i in (19, 20, 21)] == [0, 0, 6]


def test_nothing_sleeps_that_a_waiting_job_could_use() -> None:
    there = Cluster("4x8:v100", spare=0)
    there.at(0.0, *there.runs("a", 0), waits("gang", 32))

    # The gang waits for a's node, and needs the three that are idle as well.
    assert not there.at(BIN_S).sleep
    assert not there.at(2 * BIN_S).sleep
    there.at(1300.0, Cancelled(JobId("gang")))
    assert len(there.at(3 * BIN_S).sleep) == 0  # it waited in this bin
    assert len(there.at(4 * BIN_S).sleep) == 3


@pytest.mark.parametrize(("rose", "sleeping"), [(20, 0), (50, 0), (None, 5)])
def test_nodes_that_were_wanted_at_this_time_yesterday_stay_awake(
    rose: int | None, sleeping: int
) -> None:
    """Use falls by one node at a time, which is too little, and at last by two.

    At this time yesterday it rose four bins later, or after the 30 that are looked ahead on.
    """
    there = Cluster("6x8:v100", spare=0, keep=0, fell=1.5)
    there.at(0.0, *(event for node in range(6) for event in there.runs(f"j{node}", node)))
    ends = {7: "j1", 9: "j2", 11: "j3", 13: "j4", 15: "j5", 160: "late"}
    starts: dict[int, tuple[Any, ...]] = {157: ("late", 1, 2)}
    if rose is not None:
        ends |= {rose + 10: "one", rose + 14: "two"}
        starts |= {rose: ("one", 1), rose + 2: ("two", 2)}
    asleep = []
    for bin_ in range(1, 165):
        events = [Finished(JobId(ends[bin_]), 1)] if bin_ in ends else []
        more = there.runs(*starts[bin_]) if bin_ in starts else ()
        asleep.append(len(there.at(bin_ * BIN_S, *events, *more).sleep))

    assert (sum(asleep[:160]), sum(asleep[160:])) == (0, sleeping)
