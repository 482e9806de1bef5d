from __future__ import annotations

import pytest

from weft.base.environment import Environment
from weft.base.errors import WireError


def test_a_script_alone_is_rank_0_of_1() -> None:
    assert Environment.read({}) == Environment()


def test_what_a_launcher_writes_is_what_a_rank_reads() -> None:
    environment = Environment(
        job="a", attempt=3, checkpoints="/c", agent="/a", coordinator="/t", devices=(4, 6),
        tier="opportunistic", weight=0.5,
        kind="cpu", nodes=2, rank=3, world_size=4, local_rank=1, local_world_size=2,
        master_addr="127.0.0.1", master_port=29500,
    )  # fmt: skip

    assert Environment.read(environment.variables()) == environment
    assert environment.device == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [("WEFT_ATTEMPT", "two"), ("WEFT_DEVICES", "0;1"), ("RANK", "1"), ("WEFT_WEIGHT", "-1")],
)
def test_a_bad_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(WireError, match=f"{name} is .*{value}"):
        Environment.read({name: value})
