"""Tables of measured speeds against what their authors published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from packages.weft.tests.perf.goodput.tuned import on, run

from weft.perf.goodput.adaptive import AdaptiveJob
from weft.perf.goodput.tables import read_tables
from weft.perf.throughputs import load_published, read_throughputs

pytestmark = pytest.mark.data


def test_isolated_jobs_take_as_long_as_in_the_authors_simulator(
    data: Callable[[str], Path],
) -> None:
    models = read_tables(data("sia/profiles"))
    kinds = {"aws": "t4", "rtx": "rtx", "dgx-ext": "a100"}
    cases = json.loads(data("sia/isolated_jct.json").read_text())

    off = {}
    for case in cases:
        tuner = AdaptiveJob(models[case["model"]], 1000.0)
        tuner.begin(on(*case["placement"]), kinds[case["gpu"]])
        took = run(tuner, now=tuner.table.restart_s)
        off[case["model"], case["gpu"], *case["placement"]] = took / case["jct_s"] - 1.0

    # The authors' fits stop early; ours go on, which finds better batches in some cases.
    parts = np.array(list(off.values()))
    assert len(parts) == 75
    assert (abs(parts) <= 0.01).sum() >= 57
    assert parts.max() < 0.03
    assert abs(parts).mean() < 0.01
    for model in ("cifar10", "bert"):  # no scaling to learn about, hence no fit that matters
        assert max(abs(off[model, gpu, 1]) for gpu in kinds) < 0.002


def test_the_published_tables_say_what_their_documentation_does(
    data: Callable[[str], Path],
) -> None:
    models = read_tables(data("sia/profiles"))

    assert {"bert", "cifar10", "deepspeech2", "imagenet", "yolov3"} <= set(models)
    cifar10 = models["cifar10"]
    assert cifar10.total == pytest.approx(39062.908, abs=0.01)
    assert {kind: k.node_gpus for kind, k in cifar10.kinds.items() if kind != "v100"} == {
        "t4": 4,
        "rtx": 8,
        "a100": 8,
        "quad": 4,
    }
    assert [cifar10.kinds[kind].max_nodes for kind in ("t4", "rtx", "a100")] == [16, 3, 2]
    for model in models.values():
        assert (np.diff(model.ends) > 0).all()


@pytest.mark.parametrize("table", ["simulation", "physical"])
def test_the_shipped_tables_are_those_of_the_authors(
    data: Callable[[str], Path], table: str
) -> None:
    name = {"simulation": "simulation", "physical": "physical_cluster"}[table]

    official = read_throughputs(data(f"gavel/{name}_throughputs.json"))

    for kind, rates in load_published(table).alone.items():
        assert rates == pytest.approx(official.alone[kind], rel=1e-5)
