"""The book of device memory against a model of the driver: who tries, and who gives way."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from weft.node.memory.book import (
    LATE_S,
    LONELY_S,
    PATIENCE_S,
    RESERVE,
    Book,
    GiveWay,
    GoOn,
    Job,
    MemoryLine,
    Out,
    Wait,
)

DEVICE, TOTAL = "d", 128
STEP_S = 0.1


@dataclass
class Driver:
    """A device whose programs obey the book at once, by the key of their first line."""

    suspends: bool = False
    now: float = 0.0
    held: dict[int, int] = field(default_factory=dict)
    wants: dict[int, int] = field(default_factory=dict)  # the key of a request: its size
    refused: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # as they got what they wanted
    away: set[Job] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.book = Book(lambda job: self.suspends)

    @property
    def free(self) -> int:
        here = sum(held for key, held in self.held.items() if job_of(key) not in self.away)
        return TOTAL - here

    def start(self, key: int, held: int) -> None:
        self.held[key] = 0
        self.obey(self.book.add_process(self.now, key, job_of(key), key))
        self.hold(key, held)

    def hold(self, key: int, held: int) -> None:
        self.held[key] = held
        self.obey(self.book.hold(self.now, key, DEVICE, held))

    def want(self, key: int, size: int, priority: float = 0.0) -> None:
        """The request of a process has the key of its process and a hundred."""
        self.wants[key + 100] = size
        wait = Wait(key + 100, job_of(key), key, DEVICE, size, priority, self.now)
        self.obey(self.book.request_memory(self.now, key + 100, wait, self.free, TOTAL))

    def end(self, key: int) -> None:
        self.held.pop(key, None)
        self.away.discard(job_of(key))
        if self.wants.pop(key + 100, None) is not None:
            self.obey(self.book.drop_member(self.now, key + 100))
        self.obey(self.book.drop_member(self.now, key))

    def pass_s(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += STEP_S
            self.obey(self.book.tick(self.now))

    def obey(self, out: Out) -> None:
        for each in out:
            if isinstance(each, GiveWay):
                self.away.add(each.job)
            elif isinstance(each, GoOn):
                self.away.discard(each.job)
                assert self.free >= 0
            else:
                self.hear(each)

    def hear(self, line: MemoryLine) -> None:
        if line.to not in self.wants:
            return
        if line.text == "refuse":
            self.refused.append(line.to - 100)
            del self.wants[line.to]
            self.obey(self.book.drop_member(self.now, line.to))
        elif line.text in ("try", "look"):
            fits = line.text == "try" and self.wants[line.to] <= self.free
            if fits:
                self.held[line.to - 100] += self.wants.pop(line.to)
                self.order.append(line.to - 100)
            self.obey(self.book.record_try(self.now, line.to, got=fits, free=self.free))
            if fits:
                self.hold(line.to - 100, self.held[line.to - 100])


def job_of(key: int) -> Job:
    return f"job-{key}", 1


def test_memory_that_becomes_free_goes_to_the_one_that_waits_longest() -> None:
    driver = Driver()
    driver.start(1, 100)
    driver.start(2, 1)
    driver.start(3, 1)
    driver.want(2, 60)
    driver.pass_s(1.0)
    driver.want(3, 60)

    driver.hold(1, 30)
    driver.pass_s(1.0)

    assert driver.order == [2]
    driver.end(2)
    driver.pass_s(3.0)
    assert driver.order == [2, 3]


def test_where_all_wait_what_is_reserved_goes_to_small_requests_at_once() -> None:
    """Each of hundreds of small parts of a network took two seconds: as good as never."""
    driver = Driver()
    for key, held in ((1, 62), (2, 61), (3, 3)):
        driver.start(key, held)
    driver.want(3, 45)
    driver.want(2, 45)
    for _ in range(20):
        driver.want(1, 1)
        driver.pass_s(0.2)
        driver.hold(1, 62)

    assert driver.order.count(1) == 20
    driver.end(1)
    driver.pass_s(1.0)
    assert driver.order[20:]


def test_a_higher_priority_comes_first() -> None:
    driver = Driver()
    driver.start(1, 100)
    driver.want(2, 60)
    driver.want(3, 60, priority=1.0)
    driver.held |= {2: 0, 3: 0}
    for key in (2, 3):
        driver.obey(driver.book.add_process(driver.now, key, job_of(key), key))

    driver.hold(1, 30)

    assert driver.order == [3]


def test_the_policys_order_comes_before_priority_and_the_longest_wait() -> None:
    driver = Driver()
    driver.book.order = {"job-3": (0.0, 1.0), "job-4": (0.0, 2.0)}
    driver.start(1, 100)
    for key in (2, 4, 3):
        driver.start(key, 1)
        driver.want(key, 60, priority=2.0 if key == 2 else 0.0)
        driver.pass_s(1.0)

    driver.end(1)
    for key in (3, 4):
        driver.pass_s(3.0)
        driver.end(key)
    driver.pass_s(3.0)

    assert driver.order == [3, 4, 2]


def test_one_that_has_waited_for_long_goes_before_the_policys_order() -> None:
    driver = Driver()
    driver.book.order = {"job-2": (0.0, 9.0), "job-3": (0.0, 1.0)}
    driver.start(1, 100)
    driver.start(2, 1)
    driver.start(3, 1)
    driver.want(2, 60)
    driver.pass_s(LATE_S)
    driver.want(3, 60)

    driver.hold(1, 30)
    driver.pass_s(1.0)

    assert driver.order == [2]


def test_where_nothing_tells_what_is_free_a_request_is_tried() -> None:
    driver = Driver()
    driver.start(1, 100)
    driver.start(2, 1)
    driver.wants[102] = 60
    wait = Wait(102, job_of(2), 2, DEVICE, 60, 0.0, driver.now)
    driver.obey(driver.book.request_memory(driver.now, 102, wait, 0, 0))
    driver.book.drop_member(driver.now, 1)  # as if the book had never heard of it

    driver.held.pop(1)
    driver.pass_s(1.0)

    assert driver.order == [2]


def test_small_requests_pass_a_large_one_only_for_a_while() -> None:
    driver = Driver()
    driver.start(1, 100)
    driver.start(2, 1)
    driver.start(3, 1)
    driver.want(2, 90)
    driver.want(3, 10)
    driver.pass_s(1.0)
    assert driver.order == [3]

    driver.pass_s(PATIENCE_S)
    driver.start(4, 0)
    driver.want(4, 10)
    driver.pass_s(1.0)

    assert driver.order == [3]
    driver.end(1)
    driver.pass_s(3.0)
    assert driver.order == [3, 2, 4]


def test_a_part_is_left_for_others_to_start_with() -> None:
    driver = Driver()
    driver.start(1, 60)
    driver.start(2, 1)
    driver.want(2, 67)
    driver.pass_s(5.0)
    assert not driver.order

    driver.hold(1, 58)
    driver.pass_s(1.0)

    assert driver.order == [2]


def test_of_two_that_wait_for_each_other_the_smaller_is_suspended_and_goes_on_later() -> None:
    driver = Driver(suspends=True)
    driver.start(1, 60)
    driver.start(2, 50)
    driver.want(1, 40)
    driver.want(2, 40)

    driver.pass_s(5.0)

    assert driver.order == [1]
    assert driver.away == {job_of(2)}
    driver.end(1)
    driver.pass_s(5.0)
    assert not driver.away
    assert driver.order == [1, 2]
    assert not driver.refused


def test_where_none_can_be_suspended_the_one_that_lost_least_is_refused() -> None:
    driver = Driver()
    driver.start(1, 60)
    driver.pass_s(10.0)
    driver.start(2, 50)
    driver.want(2, 40)
    driver.want(1, 40)

    driver.pass_s(5.0)

    assert driver.refused == [2]


def test_memory_that_no_job_holds_is_not_waited_for_without_end() -> None:
    driver = Driver()
    driver.start(1, 10)
    driver.held[9] = 100  # of a program that the book does not know
    driver.want(1, 60)

    driver.pass_s(LONELY_S - 1.0)
    assert not driver.refused
    driver.pass_s(3.0)

    assert driver.refused == [1]


def test_what_is_missing_counts_those_that_are_served_first() -> None:
    driver = Driver()
    driver.start(1, 100)
    driver.start(2, 1)
    driver.start(3, 1)
    driver.want(2, 40)
    driver.pass_s(1.0)
    driver.want(3, 40)

    waits = driver.book.waits
    reserve = TOTAL // RESERVE

    assert driver.book.missing_bytes(waits[102]) == 40 + reserve - driver.free
    assert driver.book.missing_bytes(waits[103]) == 80 + reserve - driver.free


steps = st.lists(
    st.tuples(
        st.integers(1, 6), st.integers(0, 90), st.sampled_from(("want", "hold", "end", "pass"))
    ),
    max_size=40,
)


@given(steps, st.booleans())
def test_all_programs_come_to_their_end(drawn: list[tuple[int, int, str]], suspends: bool) -> None:
    driver = Driver(suspends)
    for key, size, what in drawn:
        waits = key + 100 in driver.wants
        if key not in driver.held:
            driver.start(key, 0)
        elif what == "end":
            driver.end(key)
        elif what == "pass":
            driver.pass_s(size / 10)
        elif what == "hold" and not waits:
            driver.hold(key, min(size, driver.held[key]))
        elif what == "want" and not waits and driver.held[key] + size <= TOTAL:
            driver.want(key, size)
        assert driver.free >= 0

    for _ in range(20):  # those that do not wait run to their end, one after the other
        driver.pass_s(LONELY_S / 2)
        idle = [
            k for k in driver.held if k + 100 not in driver.wants and job_of(k) not in driver.away
        ]
        if idle:
            driver.end(idle[0])

    assert not driver.held
    assert not driver.away
