"""What decides in a service before anybody says."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weft.app.serve.live import DEFAULT_POLICY, Live, Settings

ENGINE = "simulated:cluster=1x4:t4"


def policy_of(settings: Settings) -> str:
    """The name of what decides once the service has opened."""

    async def look() -> str:
        live = Live(settings)
        await live.open()
        try:
            return live.policy.text
        finally:
            await live.close()

    return asyncio.run(look())


def test_a_new_service_begins_with_the_default_and_an_old_one_keeps_its_policy(
    tmp_path: Path,
) -> None:
    new, old = tmp_path / "new", tmp_path / "old"

    first = policy_of(Settings(ENGINE, new, decide_in="service", default=DEFAULT_POLICY))
    begun = policy_of(Settings(ENGINE, old, decide_in="service"))  # as versions before did
    again = policy_of(Settings(ENGINE, old, decide_in="service", default=DEFAULT_POLICY))
    named = policy_of(Settings(ENGINE, old, policy="las", decide_in="service"))
    later = policy_of(Settings(ENGINE, old, decide_in="service", default=DEFAULT_POLICY))

    assert (first, begun, again, named, later) == ("weft", "fifo", "fifo", "las", "las")
