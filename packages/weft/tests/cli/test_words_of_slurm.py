"""What people type who know Slurm: `-n`, `--time`, `--gpus-per-node`."""

from __future__ import annotations

from typing import Any

import pytest

from weft.cli.job_files.job_options import Flags
from weft.core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        (Flags(tasks="1"), {"processes": 1}),
        (Flags(tasks="4", gpus="4"), {"processes": "per-gpu", "gpus": 4}),
        (Flags(tasks="2", gpus="8", nodes=2), {"processes": 1, "gpus": 8, "nodes": 2}),
        (Flags(gpus_per_node=4, nodes=2), {"gpus": 8, "nodes": 2}),
        (
            Flags(gpus_per_node=4, nodes=2, tasks="8"),
            {"gpus": 8, "nodes": 2, "processes": "per-gpu"},
        ),
        (Flags(gpus_per_node=2), {"gpus": 2}),
        (Flags(time="30"), {"time_limit_s": 1800.0}),
        (Flags(time="1-2"), {"time_limit_s": 93_600.0}),
        (Flags(time="90s"), {"time_limit_s": 90.0}),
        (Flags(time_limit="30"), {"time_limit_s": 30.0}),
    ],
)
def test_words_of_slurm_mean_what_they_mean_there(flags: Flags, body: dict[str, Any]) -> None:
    assert flags.body() == body


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (Flags(tasks="3", gpus="4"), "-n 3 is neither"),
        (Flags(tasks="base", gpus="4"), "-n base is neither"),
        (Flags(tasks="2", gpus="1-4"), "-n 2 is neither"),
        (Flags(tasks="2", processes="1"), "-n and --processes are both given"),
        (Flags(gpus_per_node=2, gpus="2"), "--gpus-per-node and --gpus are both given"),
        (Flags(time="soon"), "soon"),
        (Flags(time="1:2:3:4"), "--time=1:2:3:4 is not a time"),
        (Flags(time="3", time_limit="3"), "--time and --time-limit are both given"),
    ],
)
def test_tasks_and_times_that_cannot_be_meant_are_refused(flags: Flags, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        flags.body()
