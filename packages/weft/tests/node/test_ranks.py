"""What exit codes and last words amount to."""

from __future__ import annotations

import pytest

from weft.node.ranks.conversation import attempt_outcome
from weft.node.ranks.rank import python_script


@pytest.mark.parametrize(
    ("codes", "left", "asked", "outcome", "reason"),
    [
        ({0: 0, 1: 0}, {}, False, "finished", ""),
        ({0: 0}, {0: "done"}, False, "finished", ""),
        ({0: 0}, {0: "done"}, True, "finished", ""),
        ({0: 0}, {0: "stopped"}, True, "stopped", ""),
        ({0: 0}, {}, True, "stopped", ""),
        ({0: -9}, {}, True, "stopped", "rank 0 ended with killed by SIGKILL"),
        ({0: -15, 1: 3}, {}, False, "failed", "rank 1 ended with exit code 3"),
        ({0: -15, 1: -9}, {}, False, "failed", "rank 1 ended with killed by SIGKILL"),
        ({0: 0}, {0: "stopped"}, False, "failed", "it left before it was done"),
        ({}, {0: "resized", 1: "resized"}, False, "failed", "it left before it was done"),
        ({1: 0}, {0: "resized", 1: "resized"}, False, "failed", "it left before it was done"),
        ({0: 0}, {0: "done", 1: "resized"}, False, "finished", ""),
        ({0: 1}, {0: "done"}, False, "failed", "rank 0 ended with exit code 1"),
    ],
)
def test_the_verdict(
    codes: dict[int, int], left: dict[int, str], asked: bool, outcome: str, reason: str
) -> None:
    assert attempt_outcome(codes, left, asked, "") == (outcome, reason)


def test_a_reason_that_is_known_comes_first() -> None:
    assert attempt_outcome({0: -9}, {}, False, "too much memory") == ("failed", "too much memory")


def test_only_scripts_of_this_interpreter_run_warm() -> None:
    import sys

    assert python_script((sys.executable, "a.py", "x"), None) == ("a.py", "x")
    assert python_script((sys.executable, "-m", "x"), None) is None
    assert python_script((sys.executable, "-c", "pass"), None) is None
    assert python_script((sys.executable,), None) is None
    assert python_script(("bash", "a.py"), "/bin:/usr/bin") is None
    assert python_script(("/no/python", "a.py"), None) is None
