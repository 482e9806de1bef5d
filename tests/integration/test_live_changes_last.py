"""What was changed while a service ran lasts over restarts, until the configuration changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.app.serve.live import Live, Settings

ENGINE = "simulated:cluster=1x4:a100"
Change = Callable[[Live], Coroutine[Any, Any, None]]


async def nothing(_: Live) -> None:
    pass


def run(state: Path, change: Change = nothing, **settings: Any) -> Live:
    """A service from its start to its end, with a change in between."""
    service = Live(Settings(engine=ENGINE, state=state, decide_in="service", **settings))

    async def live() -> None:
        await service.open()
        await change(service)
        await service.close()

    asyncio.run(live())
    return service


async def to_srtf(service: Live) -> None:
    await service.set_policy("srtf")


async def own_two(service: Live) -> None:
    await service.set_quotas(replace(service.quotas, own={"nlp": 2.0}))


def test_a_live_change_of_policy_lasts_and_the_difference_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, to_srtf, policy="las")

    with caplog.at_level(logging.WARNING):
        again = run(tmp_path, policy="las")

    assert again.policy.name == "srtf"
    assert "policy srtf, set while the service ran, stays in force" in caplog.text
    assert "the configuration says las" in caplog.text
    assert run(tmp_path, policy="las").policy.name == "srtf"


def test_a_changed_configuration_wins_over_a_live_change(tmp_path: Path) -> None:
    run(tmp_path, to_srtf, policy="las")

    assert run(tmp_path, policy="fifo").policy.name == "fifo"
    assert run(tmp_path).policy.name == "fifo"


def test_a_live_change_of_quotas_lasts_until_the_configuration_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lending = {"own": {"nlp": 1.0}}
    run(tmp_path, own_two, policy="fifo", lending=lending)

    with caplog.at_level(logging.WARNING):
        assert run(tmp_path, policy="fifo", lending=lending).quotas.own == {"nlp": 2.0}
    assert "own {'nlp': 2.0}, set while the service ran" in caplog.text
    assert run(tmp_path, lending={"own": {"nlp": 3.0}}).quotas.own == {"nlp": 3.0}


def test_nothing_is_said_where_nothing_was_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, policy="las")

    with caplog.at_level(logging.WARNING):
        assert run(tmp_path, policy="las").policy.name == "las"
    assert "set while the service ran" not in caplog.text
