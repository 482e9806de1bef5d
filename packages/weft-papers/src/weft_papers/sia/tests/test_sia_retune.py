"""Jobs tuned offline: the procedure finds what the authors' own files hold."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.perf.goodput.tables import read_tables
from weft_papers.sia.published.retune import retuned, tunings


@pytest.mark.parametrize(
    ("model", "shipped"),
    [
        ("cifar10", {(6, 2048), (8, 2048), (12, 4096), (16, 4096)}),
        ("bert", {(6, 384), (8, 384), (12, 384), (16, 384)}),
        ("deepspeech2", {(6, 320), (8, 320), (12, 640)}),
        ("yolov3", {(4, 64)}),
    ],
)
def test_what_the_philly_files_ask_for_is_found_on_t4(
    data: Callable[[str], Path], model: str, shipped: set[tuple[int, int]]
) -> None:
    profiles = data("sia/profiles")

    pairs = tunings(profiles / model, read_tables(profiles, (model,), ("t4",))[model], "t4", 64)

    assert shipped <= set(pairs)


def test_a_retuned_workload_keeps_everything_else(
    data: Callable[[str], Path], tmp_path: Path
) -> None:
    path = retuned(data("sia"), "philly/workload-1", "t4", 64, tmp_path)

    with (
        path.open(newline="") as new,
        data("sia/workloads/philly/workload-1.csv").open(newline="") as old,
    ):
        pairs = list(zip(csv.DictReader(new), csv.DictReader(old), strict=True))
    assert all((a["name"], a["time"]) == (b["name"], b["time"]) for a, b in pairs)
    large = {int(a["num_replicas"]) for a, _ in pairs if a["application"] == "imagenet"}
    assert min(large) >= 18  # fewer take more than 12 hours
