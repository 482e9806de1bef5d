"""Every policy says where it comes from and what it changes, and is exercised somewhere."""

from __future__ import annotations

import sys

import pytest
from tests.house.sources import PAPERS, ROOT

from weft.core.plan.taxonomy import QUESTIONS, Taxonomy
from weft.core.spec.registry import ROLES, find, names

DECLARE = (
    "say where it stands: taxonomy=classify(objective, knowledge, ...) in its About, for a "
    "wrapper `adds = Taxonomy(...)` in its class; questions without an answer: "
)
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
    own = PAPERS / name / "README.md"
    assert own.is_file() or (ROOT / "docs" / "reference" / "policies" / f"{name}.md").is_file()
    assert f"\n{name}" in (ROOT / "tests" / "golden" / "tiny.txt").read_text()


@pytest.mark.parametrize("name", names("policy"))
def test_a_policy_says_where_it_stands_in_the_field(name: str) -> None:
    about = find("policy", name)().about

    missing = about.taxonomy.missing()

    assert not missing, (
        f"{DECLARE}{', '.join(missing)} (weft/core/plan/taxonomy.py has the answers)"
    )


@pytest.mark.parametrize("name", names("wrapper"))
def test_a_wrapper_says_what_it_adds(name: str) -> None:
    added = vars(find("wrapper", name)).get("adds")

    assert isinstance(added, Taxonomy), f"{DECLARE}{', '.join(QUESTIONS)}, at least one of them"
    assert added.answers()


@pytest.mark.parametrize(("role", "name"), [(role, name) for role in ROLES for name in names(role)])
def test_a_part_of_compositions_says_who_it_is_and_what_it_brings(role: str, name: str) -> None:
    part = find(role, name)

    assert part().about.name == name
    assert part.__doc__
    assert part().about.taxonomy.answers() or name in ("none", "priority")
