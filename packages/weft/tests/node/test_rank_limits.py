"""What one process may use of its machine."""

from __future__ import annotations

from dataclasses import replace

from weft.node.ranks.command_plan import limits_of
from weft.wire.attempt import AttemptSpec

SPEC = AttemptSpec("job", 1, ("true",), "/", "/c", (0, 1), mem_gb=8.0)


def test_addresses_are_limited_where_there_are_no_gpus() -> None:
    assert limits_of(SPEC, 0, None, None).mem_gb == 4.0


def test_addresses_are_not_limited_where_gpus_are_mapped_into_them() -> None:
    assert limits_of(replace(SPEC, visible="0,1"), 0, None, None).mem_gb == 0.0
    assert limits_of(replace(SPEC, learnt=True), 0, None, None).mem_gb == 0.0
