"""Every policy says where it comes from and what it changes, and is exercised somewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weft.core.registry import find, names

ROOT = Path(__file__).resolve().parents[2]
FIELDS = ("Paper", "Objective", "Needs", "Controls", "Cost", "Deviations")


@pytest.mark.parametrize("name", names("policy"))
def test_a_policy_module_has_the_six_fields(name: str) -> None:
    doc = sys.modules[find("policy", name).__module__].__doc__ or ""

    missing = [field for field in FIELDS if f"\n{field} " not in doc]

    assert not missing


@pytest.mark.parametrize("name", names("policy"))
def test_a_policy_is_named_like_its_file_and_class(name: str) -> None:
    policy = find("policy", name)

    assert policy().about.name == name
    assert policy.__module__.rpartition(".")[2] in (name, "policy")
    assert policy.__name__.lower() == name.replace("-", "").replace("_", "")


@pytest.mark.parametrize("name", names("policy"))
def test_a_policy_has_a_reference_page_and_a_golden(name: str) -> None:
    assert (ROOT / "docs" / "reference" / "policies" / f"{name}.md").is_file()
    assert f"\n{name}" in (ROOT / "tests" / "golden" / "tiny.txt").read_text()
