"""Metrics in the output of programs."""

from __future__ import annotations

import time

import pytest

from weft.node.measuring.printed_metrics import LONGEST_LINE, MOST_OF_LINE, PrintedMetrics

LOSS = [("loss", 3.0, 0.31)]


def read(text: str, *patterns: str) -> list[tuple[str, float, float]]:
    return PrintedMetrics(patterns or ("*",)).read(text.encode() + b"\n")


@pytest.mark.parametrize(
    "line",
    [
        "step=3 loss=0.31",
        "Step: 3, loss: 0.31.",
        "[12:30:01] INFO train.py:17 epoch = 7 iter = 3 | loss = 3.1e-1",
        '{"step": 3, "loss": 0.31, "note": "a=b", "done": true, "lr": null}',
        "{'loss': '0.31', 'step': 3.0}",
        "  3%|#   | 3/100 [00:01<00:30, 3.2it/s, loss=0.31, step=3]",
        "\x1b[32mloss=0.31\x1b[0m \x1b[1mstep\x1b[0m: 3",
    ],
)
def test_pairs_are_read_however_they_are_written(line: str) -> None:
    assert read(line, "loss") == LOSS


def test_only_names_that_a_pattern_names_are_read_and_none_without_one() -> None:
    line = "val_loss=0.5 val/acc=0.9 loss=0.3 lr=0.1 old_val_loss=7"

    assert [name for name, _, _ in read(line, "val?*", "lr")] == ["val_loss", "val/acc", "lr"]
    assert PrintedMetrics(()).read(b"loss=1\n") == []


@pytest.mark.parametrize(
    "text", ["12:30:01", "v=1.2.3", "took=5ms", "at=12:30", "a == 3", "loss", "x" * 65 + "=1"]
)
def test_what_is_no_number_by_a_name_is_none(text: str) -> None:
    assert read(text) == []


def test_a_value_that_is_no_finite_number_is_read_and_a_step_may_be_missing() -> None:
    assert str(read("loss=nan acc=-inf")) == "[('loss', -1.0, nan), ('acc', -1.0, -inf)]"


def test_a_line_may_come_in_parts_and_end_with_a_carriage_return() -> None:
    metrics = PrintedMetrics(("*",))

    assert metrics.read(b"step=3 lo") == metrics.read(b"ss=0.") == []
    assert metrics.read(b"31\rloss=9") == LOSS


def test_a_long_line_is_left_out_and_the_next_one_read() -> None:
    metrics = PrintedMetrics(("*",))
    for _ in range(100):
        assert metrics.read(b"loss=1 " * LONGEST_LINE) == []

    assert metrics.read(b"\nstep=3 loss=0.31\n") == LOSS


def test_of_a_line_with_many_values_and_of_many_lines_the_rest_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)

    assert len(read(" ".join(f"m{i}={i}" for i in range(200)))) == MOST_OF_LINE
    assert len(read("loss=1\n" * 10_000)) == 500


@pytest.mark.parametrize("text", ["a" * 65_536, "a=" * 32_768, "a=1" + "1" * 65_536, '"' * 65_536])
def test_hostile_output_under_hostile_patterns_comes_to_its_end(text: str) -> None:
    metrics = PrintedMetrics(("*a*a*a*a*a*a*b",) * 32)
    lines = [text[i : i + LONGEST_LINE] for i in range(0, len(text), LONGEST_LINE)]

    assert metrics.read("\n".join([*lines, "a" * 64 + "=1", ""]).encode()) == []
