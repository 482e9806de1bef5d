"""The models that ship with the package: parameters fitted to published measurements.

Made by `python -m benchmarks.fit_profiles` from the profiles of the Sia artifact (SOSP 2023, which
extends Pollux, OSDI 2021); the file states the error of every fit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from weft.base.step_times import StepTime
from weft.frozen import frozen
from weft.perf.goodput.tables import ModelTable

MAX_NODES = 16


@frozen
class FittedKind:
    """One model on one GPU kind, by its fitted step times."""

    step_time: StepTime
    min_local: int
    max_local: int
    bootstrap: float
    node_gpus: int
    max_nodes: int = MAX_NODES
    unit: int = 1

    def times(self, placement: Sequence[int], local: float) -> tuple[float, float]:
        step = float(self.step_time.step(len(placement), sum(placement), local))
        return step, step - float(self.step_time.grad(local))

    def largest_local(self, placement: Sequence[int]) -> int:  # noqa: ARG002 - memory is per GPU
        """Return the limit of one GPU, wherever the GPUs are."""
        return self.max_local


@cache
def load_shipped_models() -> dict[str, ModelTable]:
    """Every model there are parameters for."""
    text = files("weft.perf").joinpath("data/models.json").read_text()
    return {name: _model(name, facts) for name, facts in json.loads(text).items()}


def _model(name: str, facts: dict[str, Any]) -> ModelTable:
    epochs, init = facts["epochs"], facts["init_batch"]
    knots = facts["noise_scale"]
    phi = np.interp(np.linspace(0, len(knots) - 1, epochs), np.arange(len(knots)), knots)
    return ModelTable(
        name,
        init,
        facts["max_batch"],
        epochs,
        facts["restart_s"],
        facts["assumed_restart_s"],
        facts["slowdown"],
        {kind: _kind(held) for kind, held in facts["kinds"].items()},
        (float(init),),
        tuple(np.linspace(0.0, facts["total"], epochs + 1)[1:].tolist()),
        tuple(((1.0, float(p) / init),) for p in phi),
    )


def _kind(held: dict[str, Any]) -> FittedKind:
    return FittedKind(
        StepTime(*held["step_time"]),
        held["min_local"],
        held["max_local"],
        held["bootstrap"],
        held["node_gpus"],
    )
