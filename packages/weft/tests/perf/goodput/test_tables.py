"""Measured tables: a hand-made folder is read, looked up exactly and in between, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig
from weft.perf.goodput.tables import KindTable, ModelTable, read_tables

FACTS = {
    "init_batch_size": 32,
    "max_batch_size": 256,
    "checkpoint_restart_s_simulated": 50,
    "restart_penalty_s_assumed_by_sia_policy": 30,
    "slowdown_divisor": 1.5,
    "per_gpu_type": {
        "aws": {"min_local_bsz": 8, "max_local_bsz": 64, "bootstrap_xput_examples_per_s": 100.0},
        "rtx": {"min_local_bsz": 4, "max_local_bsz": 32, "bootstrap_xput_examples_per_s": 50.0},
    },
}
# Step times are local / 100 + sync, sync is (replicas - 1) / 100 and twice that over nodes.
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,8,0.08,0.0
1,64,0.64,0.0
2,8,0.09,0.01
2,32,0.33,0.01
4,8,0.11,0.03
4,32,0.35,0.03
13,8,0.14,0.06
22,8,0.16,0.06
44,8,0.22,0.14
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
4,8,8,0.30,0.22
4,8,16,0.38,0.22
4,16,8,0.46,0.38
1,4,8,9.99,9.99
"""
VALIDATION = """progress,iteration,metric,grad_sqr,grad_var
{0},10,0.5,{1},2.0
{2},20,0.6,{1},4.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    profiles = tmp_path / "profiles"
    model = profiles / "toy"
    model.mkdir(parents=True)
    (tmp_path / "models.json").write_text(json.dumps({"models": {"toy": FACTS, "absent": FACTS}}))
    (model / "placements-aws.csv").write_text(PLACEMENTS)
    (model / "scalability-aws.csv").write_text(SCALABILITY)
    (model / "validation-32.csv").write_text(VALIDATION.format(100, 1.0, 200))
    (model / "validation-128.csv").write_text(VALIDATION.format(90, 3.0, 210))
    (profiles / "unknown").mkdir()
    return profiles


@pytest.fixture
def toy(folder: Path) -> ModelTable:
    return read_tables(folder)["toy"]


@pytest.fixture
def t4(toy: ModelTable) -> KindTable:
    table = toy.kinds["t4"]
    assert isinstance(table, KindTable)
    return table


# ---- reading


def test_facts_and_tables_make_one_model(toy: ModelTable, t4: KindTable) -> None:
    assert (toy.name, toy.init_batch, toy.max_batch, toy.epochs) == ("toy", 32, 256, 2)
    assert (toy.restart_s, toy.assumed_restart_s, toy.slowdown) == (50, 30, 1.5)
    assert (t4.min_local, t4.max_local, t4.bootstrap) == (8, 64, 100.0)
    assert (t4.node_gpus, t4.max_nodes) == (4, 4)


def test_only_models_and_kinds_with_both_facts_and_files_are_there(folder: Path) -> None:
    models = read_tables(folder)

    assert set(models) == {"toy"}
    assert set(models["toy"].kinds) == {"t4"}


def test_an_epoch_ends_at_the_least_progress_of_any_batch_size(toy: ModelTable) -> None:
    assert toy.ends == pytest.approx((90, 200))
    assert toy.total == 200


# ---- looking up


@pytest.mark.parametrize(
    ("placement", "local", "times"),
    [
        ((1,), 8, (0.08, 0.0)),
        ((1,), 64, (0.64, 0.0)),
        ((1,), 36, (0.36, 0.0)),  # between two batch sizes
        ((2,), 20, (0.21, 0.01)),
        ((4, 4), 8, (0.22, 0.14)),
        ((1, 3), 8, (0.14, 0.06)),
        ((3, 1), 8, (0.14, 0.06)),  # the same shape from the other end
    ],
)
def test_a_measured_placement_is_looked_up(
    t4: KindTable, placement: tuple[int, ...], local: int, times: tuple[float, float]
) -> None:
    assert t4.times(placement, local) == pytest.approx(times)


def test_a_placement_at_scale_comes_from_the_scalability_table(t4: KindTable) -> None:
    assert t4.times((2, 2, 2, 2), 12) == pytest.approx((0.34, 0.22))


def test_placements_win_over_scalability_at_the_same_shape(t4: KindTable) -> None:
    assert t4.times((4,), 8) == pytest.approx((0.11, 0.03))


def test_what_was_not_measured_lies_between_its_neighbours(t4: KindTable) -> None:
    step, sync = t4.times((3,), 8)

    assert step == pytest.approx(0.10)
    assert sync == pytest.approx(0.02)


def test_node_counts_between_measured_ones_are_interpolated(t4: KindTable) -> None:
    step, sync = t4.times((4, 4, 4), 8)

    assert step == pytest.approx((0.22 + 0.46) / 2)
    assert sync == pytest.approx((0.14 + 0.38) / 2)


def test_more_nodes_than_measured_are_taken_as_the_most(t4: KindTable) -> None:
    assert t4.times((4,) * 8, 8) == pytest.approx((0.46, 0.38))


@pytest.mark.parametrize(
    ("placement", "largest"),
    [((1,), 64), ((2,), 32), ((4, 4), 8), ((3, 1), 8), ((3, 3, 2), 16), ((4,) * 16, 64)],
)
def test_the_largest_batch_is_that_of_the_placement_or_of_a_wider_one(
    t4: KindTable, placement: tuple[int, ...], largest: int
) -> None:
    assert t4.largest_local(placement) == largest


@pytest.mark.parametrize(
    ("batch", "sqr"), [(32, 1.0), (128, 3.0), (80, 2.0), (8, 1.0), (1000, 3.0)]
)
def test_noise_lies_between_measured_batch_sizes(toy: ModelTable, batch: int, sqr: float) -> None:
    assert toy.noise(batch, 0) == pytest.approx((sqr, 2.0))
    assert toy.noise(batch, 1) == pytest.approx((sqr, 4.0))


# ---- refusing


def test_a_missing_facts_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"models\.json"):
        read_tables(tmp_path / "profiles")


def test_a_facts_file_of_another_shape_is_named(folder: Path) -> None:
    (folder.parent / "models.json").write_text('{"modles": {}}')

    with pytest.raises(InvalidConfig, match=r"models\.json"):
        read_tables(folder)


def test_a_folder_without_known_models_is_refused(folder: Path) -> None:
    (folder.parent / "models.json").write_text('{"models": {}}')

    with pytest.raises(InvalidConfig, match="holds no profiles"):
        read_tables(folder)


def test_a_cell_that_is_not_a_number_is_refused_with_its_file(folder: Path) -> None:
    (folder / "toy" / "placements-aws.csv").write_text(PLACEMENTS.replace("0.64", "fast"))

    with pytest.raises(InvalidConfig, match=r"placements-aws\.csv"):
        read_tables(folder)


def test_a_missing_table_of_step_times_is_named(folder: Path) -> None:
    (folder / "toy" / "scalability-aws.csv").unlink()

    with pytest.raises(InvalidConfig, match=r"scalability-aws\.csv"):
        read_tables(folder)


def test_a_model_without_validation_runs_is_refused_with_its_folder(folder: Path) -> None:
    for path in (folder / "toy").glob("validation-*.csv"):
        path.unlink()

    with pytest.raises(InvalidConfig, match="toy"):
        read_tables(folder)


def test_a_missing_column_is_refused_with_its_file(folder: Path) -> None:
    text = PLACEMENTS.replace("sync_time", "sink_time")
    (folder / "toy" / "placements-aws.csv").write_text(text)

    with pytest.raises(InvalidConfig, match=r"placements-aws\.csv"):
        read_tables(folder)


def test_a_missing_fact_is_refused_with_its_model(folder: Path) -> None:
    facts = {name: fact for name, fact in FACTS.items() if name != "slowdown_divisor"}
    (folder.parent / "models.json").write_text(json.dumps({"models": {"toy": facts}}))

    with pytest.raises(InvalidConfig, match="slowdown_divisor"):
        read_tables(folder)
