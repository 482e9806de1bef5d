"""The time of a step before its backward pass, on a device that works behind its process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.node.watcher._weft_watch.frameworks import ForwardTimes


class Cuda:
    """A device: events pass at `now`, once that has come to the times they were put in at."""

    def __init__(self) -> None:
        self.asked, self.now, self.capturing = 0.0, 0.0, False
        self.events = 0

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802 - torch's name
        assert enable_timing
        self.events += 1
        event = SimpleNamespace(at=0.0)
        event.record = lambda: setattr(event, "at", self.asked)
        event.query = lambda: event.at <= self.now
        event.elapsed_time = lambda later: (later.at - event.at) * 1e3
        return event


def forward(cuda: Cuda) -> tuple[ForwardTimes, list[float]]:
    reported: list[float] = []
    return ForwardTimes(SimpleNamespace(worked=reported.append), cuda), reported


def test_it_is_told_when_the_device_has_come_so_far() -> None:
    cuda = Cuda()
    times, reported = forward(cuda)
    times.begin()
    cuda.asked = 0.25
    times.end()
    cuda.asked = 1.0
    times.begin()
    assert reported == []

    cuda.now = 2.0
    times.begin()

    assert reported == [0.25]


def test_only_the_first_backward_pass_of_a_step_counts() -> None:
    cuda = Cuda()
    times, reported = forward(cuda)
    times.begin()
    for cuda.asked in (0.25, 0.75):
        times.end()
    cuda.now = 1.0
    times.begin()

    assert reported == [0.25]


def test_nothing_is_put_into_a_graph_that_is_being_captured() -> None:
    cuda = Cuda()
    cuda.capturing = True
    times, reported = forward(cuda)
    times.begin()
    times.end()

    assert (cuda.events, reported) == (0, [])
