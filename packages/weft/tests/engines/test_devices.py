"""What a machine is taken to have."""

from __future__ import annotations

import pytest

from weft.core.errors import EngineError, InvalidConfig
from weft.engines.machine.devices import Gpu, kind_of, parse_smi, split_cores, this_machine


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("Quadro RTX 6000", "rtx-6000"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA L40S", "l40s"),
    ],
)
def test_a_model_has_a_short_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_nvidia_smi_is_understood() -> None:
    text = "0, NVIDIA H200, 143771\n1, NVIDIA H200, 143771\n"

    gpus = parse_smi(text)

    assert [gpu.index for gpu in gpus] == [0, 1]
    assert gpus[0].mem_gb == pytest.approx(140.4, abs=0.1)


def test_nonsense_from_nvidia_smi_is_shown() -> None:
    with pytest.raises(EngineError, match="'No devices were found'"):
        parse_smi("No devices were found")


def test_cores_are_split_evenly_and_shared_when_there_are_too_few() -> None:
    assert split_cores(range(8), 4) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert split_cores(range(5), 2) == ((0, 1), (2, 3, 4))
    assert split_cores((3, 9), 5) == ((3,), (9,), (3,), (9,), (3,))


def test_without_gpus_slots_stand_in() -> None:
    machine = this_machine("here", 3, ())

    assert (machine.node.id, machine.node.kind, machine.node.gpus) == ("here", "cpu", 3)
    assert machine.node.mem_gb > 0.0
    assert len(machine.cores) == 3


def test_gpus_make_the_node() -> None:
    gpus = (Gpu(0, "NVIDIA H200", 140.0), Gpu(1, "NVIDIA H200", 140.0))

    machine = this_machine("here", 7, gpus)

    assert (machine.node.kind, machine.node.gpus) == ("h200", 2)


def test_mixed_machines_and_negative_slots_are_refused() -> None:
    with pytest.raises(EngineError, match="several kinds: a100, h200"):
        this_machine("here", 0, (Gpu(0, "NVIDIA H200", 1.0), Gpu(1, "NVIDIA A100", 1.0)))
    with pytest.raises(InvalidConfig, match="cannot be -1 slots"):
        this_machine("here", -1, ())
