"""Settings that make searching and round-based policies quick enough to run a hundred times.

Their search is smaller and their rounds longer; what they must keep is the same. A fast run also
gives fewer jobs to those whose contract is checked.
"""

from __future__ import annotations

from tests.examples import is_thorough
from weft.core.plan.policy import Policy
from weft.core.spec.registry import names
from weft.perf.sharing.colocation import Interfering, even_parts
from weft.testing import check_policy

CHEAP = {
    "gavel": "gavel:round=600",
    "pollux": "pollux:generations=4,population=12,interval=300",
    "rubick": "rubick:interval=300",
    "shockwave": "shockwave:window=2,round=3600",
    "sia": "sia:interval=300",
    "slaq": "slaq:epoch=60",
    "smd": "smd:interval=300",
    "weft": "weft:wake_s=600",
}


def every_policy() -> tuple[str, ...]:
    """Every registered policy, in its quick form where it has one."""
    return tuple(CHEAP.get(name, name) for name in names("policy"))


def check_contract(policy: Policy, interfering: Interfering = even_parts) -> None:
    """`check_policy`, with as many jobs as users get in a thorough run and fewer in a fast one."""
    check_policy(policy, jobs=40 if is_thorough() else 10, interfering=interfering)
