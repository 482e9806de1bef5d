"""Trainings that are resized and killed end where undisturbed ones do."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import elastic_training


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "huggingface", "lightning"])
def test_rates_and_losses_of_a_disturbed_training_are_the_undisturbed_ones(
    name: str, tmp_path: Path
) -> None:
    comparison = elastic_training.compare(name, tmp_path, resizes=3, kills=1)

    low, high = comparison["loss_seeds"]
    assert comparison["steps_again"] > 0
    assert comparison["rates_differ"] == 0
    assert abs(comparison["loss_disturbed"] - comparison["loss_undisturbed"]) <= high - low
