"""What cores and host memory do for a job: laws, tables and the way between their points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile, Sensitivity
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.protocols import Resident
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.host import ByModel, HostShareSpeed, load_shipped, read_tables

SMALL = Sensitivity((1.0, 3.0), (20.0, 60.0), ((0.2, 0.5), (0.4, 1.0)))


def test_between_points_speed_is_linear_and_outside_as_at_the_edge() -> None:
    assert SMALL.at(2.0, 40.0) == pytest.approx((0.2 + 0.5 + 0.4 + 1.0) / 4)
    assert SMALL.at(9.0, 500.0) == 1.0
    assert SMALL.at(0.5, 60.0) == pytest.approx(0.25)


@given(
    st.lists(st.floats(0.0, 24.0), min_size=2, max_size=2).map(sorted),
    st.lists(st.floats(0.0, 300.0), min_size=2, max_size=2).map(sorted),
    st.sampled_from(sorted(load_shipped())),
)
def test_more_of_a_host_never_slows_a_job(
    cores: list[float], memory: list[float], model: str
) -> None:
    table = load_shipped()[model]

    assert table.at(cores[0], memory[0]) <= table.at(cores[1], memory[1]) + 1e-12


def test_another_share_in_proportion_is_another_unit() -> None:
    assert SMALL.relative_to(1.0, 60.0).at(3.0, 60.0) == pytest.approx(2.0)


def test_a_law_is_the_least_of_gpu_cores_and_storage() -> None:
    law = HostShareSpeed(top=2.0, core=0.5, power=1.0, stream=0.9, data_gb=100.0, need_gb=30.0)

    assert law.at(2.0, 200.0) == 1.0
    assert law.at(24.0, 200.0) == 2.0
    assert law.at(24.0, 50.0) == pytest.approx(1.8)
    assert law.at(24.0, 20.0) == 0.1


def test_a_gang_is_as_fast_as_its_poorest_member() -> None:
    coupling = Colocated(lambda _: Profile(), sensitivity=lambda _: SMALL)
    rich = Slice(NodeId("a"), (0,), 3.0, 60.0)
    poor = Slice(NodeId("b"), (0, 1), 2.0, 120.0)
    job = Job(JobId("j"))

    assert coupling.speed(Resident(job, Allocation((rich,)), "v100"), ()) == 1.0
    assert coupling.speed(Resident(job, Allocation((rich, poor)), "v100"), ()) == 0.5


def test_models_are_known_by_several_names_and_others_not_at_all() -> None:
    node = Node(NodeId("a"), "v100", 8, cpus=24.0, mem_gb=500.0)
    known = ByModel.on(Cluster((node,)), load_shipped())

    assert known(Job(JobId("j"), model="ResNet18")) == load_shipped()["res18"]
    assert known(Job(JobId("j"), model="unheard-of")) is None


def test_the_shipped_laws_come_close_to_the_published_tables(data: Callable[[str], Path]) -> None:
    for name, table in read_tables(data("synergy")).items():
        off = np.abs(np.array(load_shipped()[name].speeds) / np.array(table.speeds) - 1.0)

        assert np.median(off) < 0.12, name
        assert off.max() < 0.35, name


def test_a_broken_table_is_named(tmp_path: Path) -> None:
    head = "profile_set,model_profile,cpus_per_gpu,mem_gb_per_gpu,tput_norm_to_fair\n"
    (tmp_path / "tput_matrix.csv").write_text(head + "models,a_1,1,20,0.5\nmodels,a_1,2,20,0.4\n")

    with pytest.raises(InvalidConfig, match="speed falls"):
        read_tables(tmp_path)
    with pytest.raises(InvalidConfig, match="cannot read"):
        read_tables(tmp_path / "nowhere")
