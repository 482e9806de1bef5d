"""The judge's verdict on a service's own log, as work that is done aside."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from weft.judge.judge import LAST_DAYS, judge
from weft.judge.log_lines import read_log
from weft.judge.words import as_values

FINDINGS = 200  # kept of them; `weft verify` has all
POLITE = 15


def judge_log(where: str, _report: Callable[[Any], None]) -> dict[str, Any]:
    """Judge the last month's log, as plain values. Everything else on the machine goes first.

    `where` is a state folder or the address of a database.
    """
    os.nice(POLITE - os.nice(0))
    verdict = as_values(judge(read_log(where), LAST_DAYS))
    return {**verdict, "findings": verdict["findings"][:FINDINGS]}
