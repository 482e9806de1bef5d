"""The contract of `weft.core.protocols.Engine`, run for real against any engine.

Each check takes a `Subject` and raises AssertionError. `CHECKS` names them all, for a test's
parameters::

    @pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
    def test_it_keeps_the_contract(check, tmp_path):
        asyncio.run(check(Subject(make=lambda: MyEngine(tmp_path), ...)))

What a subject has no jobs or no hooks for is skipped: give it all that the engine can do.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.testing.engine_life import LIFE
from weft.testing.engine_places import PLACES, TENANTS
from weft.testing.engine_resize import RESIZES
from weft.testing.engine_sessions import SESSIONS
from weft.testing.engine_sleep import SLEEPS
from weft.testing.engine_subject import Check
from weft.testing.engine_trouble import TROUBLE

CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (*LIFE, *PLACES, *RESIZES, *SESSIONS, *SLEEPS, *TENANTS, *TROUBLE)
}
