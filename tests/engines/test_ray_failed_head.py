"""A head of Ray that does not begin: nothing of it is left, and its log is named."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clusters.ray import why_not
from weft.core.errors import EngineError
from weft.engines.ray import starting as head
from weft.engines.ray.starting import NodeSetup
from weft.wire.processes import find_tagged

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]
NOT_HERE = "192.0.2.1"  # an address that no machine has


@pytest.mark.usefixtures("ray_network")
@pytest.mark.parametrize("begin_s", [2.0, 15.0])
def test_a_head_that_does_not_begin_in_time_is_ended_and_its_log_is_named(
    begin_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "BEGIN_S", begin_s)
    setup = NodeSetup("h1", slots=1, cpus=1, ip=NOT_HERE, port=26402)

    with pytest.raises(EngineError, match="head of Ray did not begin within") as refused:
        asyncio.run(head.need_head(tmp_path, setup))

    assert str(tmp_path / head.LOG) in refused.value.what
    assert head.find_head(tmp_path) is None
    left = find_tagged("RAY_AUTH_TOKEN_PATH", str(tmp_path / head.TOKEN))
    assert [Path(f"/proc/{pid}/cmdline").read_text()[:200] for pid in left] == []
