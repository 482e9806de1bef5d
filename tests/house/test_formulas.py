"""Every published rule has a function, a worked example and a test of a whole policy."""

from __future__ import annotations

import pytest
from benchmarks.formulas import Formula, find_function, find_tests, read_table

from weft.core.spec.registry import names


def test_every_policy_has_a_rule_in_the_table_of_formulas() -> None:
    assert {row.policy for row in read_table()} >= set(names("policy"))


@pytest.mark.parametrize("row", read_table(), ids=lambda row: f"{row.policy} {row.function}")
def test_functions_and_tests_of_the_table_of_formulas_are_there(row: Formula) -> None:
    assert not row.function or find_function(row.function) is not None
    named = [test for test in (row.worked, row.whole) if test]
    assert [test for test in named if len(find_tests().get(test, ())) != 1] == []
    assert row.whole
