"""Who weighs how much, from the weights of users and tenants."""

from __future__ import annotations

import pytest

from weft.core.errors import InvalidConfig
from weft.formulas.fairness.shares import check_weights, weigh_owners


def test_users_have_their_own_weight_or_a_part_of_their_tenants() -> None:
    owners = [("ada", "vision"), ("bob", "vision"), ("cyd", "nlp"), ("dee", "vision"), ("ada", "")]

    weights = weigh_owners(owners[:4], {"vision": 3.0, "dee": 2.0})

    assert weights == {"ada": 1.5, "bob": 1.5, "cyd": 1.0, "dee": 2.0}


def test_a_tenant_without_users_has_its_own() -> None:
    assert weigh_owners([("vision", "vision"), ("nlp", "nlp")], {"vision": 3.0}) == {
        "vision": 3.0,
        "nlp": 1.0,
    }


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_weight_is_above_nothing(weight: float) -> None:
    with pytest.raises(InvalidConfig, match="--weights gives 'ada' a weight"):
        check_weights("--weights", {"ada": weight})
