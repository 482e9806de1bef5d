"""A machine goes on trying to be a node of its cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from weft.engines.ray import joining
from weft.engines.ray.joining import JoinOutcome, Leaving, stay_joined
from weft.engines.ray.starting import NodeSetup

AWAY = JoinOutcome(1, "Failed to connect to GCS")


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leaving]:
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(joining, "FIRST_S", 0.001)
    monkeypatch.setattr(joining, "MOST_S", 0.004)
    yield Leaving(NodeSetup("n2", slots=1, cpus=1, ip="127.0.0.1", port=1), lambda _text: None)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_is_tried_again_with_growing_pauses_that_begin_anew_once_it_was_a_node(
    leaving: Leaving,
) -> None:
    tries = iter([*[AWAY] * 4, JoinOutcome(1, "", listed=True), AWAY])
    lines: list[str] = []

    def try_once() -> JoinOutcome:
        done = next(tries, None)
        if done is None:
            os.kill(os.getpid(), signal.SIGTERM)
            return JoinOutcome(0, "")
        return done

    assert stay_joined(try_once, leaving, "a head at h:1", lines.append).code == 0

    pauses = [float(text.rpartition(" in ")[2].removesuffix(" s")) for text in lines]
    assert pauses == [0.001, 0.002, 0.004, 0.004, 0.001, 0.002]
    assert lines[0].startswith("waits for a head at h:1: Failed to connect to GCS; tries again")
    assert "the cluster went away" in lines[4]


def test_a_signal_ends_a_pause(leaving: Leaving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "FIRST_S", 10_000.0)

    def say(_text: str) -> None:
        signal.raise_signal(signal.SIGTERM)

    assert stay_joined(lambda: AWAY, leaving, "it", say) == JoinOutcome(0, "")


@pytest.mark.parametrize("reason", ["the token is wrong", "Unauthenticated", "another version"])
def test_what_another_try_does_not_change_ends_it(leaving: Leaving, reason: str) -> None:
    lines: list[str] = []
    refused = JoinOutcome(1, reason)

    assert stay_joined(lambda: refused, leaving, "it", lines.append) == refused
    assert not lines
