"""A known model that ran out of memory beside others has a GPU to itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.strangers import World
from weft.core.events.event import Failed
from weft.core.model.job import JobId

SHARING = ["iadeep", "iadeep:tune=false", "gandiva", "muri"]
ROUNDS = 100


@pytest.mark.parametrize("policy", SHARING)
def test_who_ran_out_of_memory_is_never_put_beside_others_again(policy: str) -> None:
    world = World(policy=policy)
    for name, model in {"first": "dlrm", "second": "lstm"}.items():
        world.submit(name, model=model, preemptible=True)
    for _ in range(ROUNDS):
        world.tell(after=60.0)
    assert len(world.shares()) == 2  # they share, so that the rest means something

    failed = Failed(JobId("first"), world.attempt("first"), retry=True, lost=True)
    world.tell(replace(failed, out_of_memory=True))
    together = set[frozenset[str]]()
    for round_ in range(2 * ROUNDS):
        world.tell(after=60.0)
        together.add(frozenset(world.shares()))
        if round_ == ROUNDS and "second" in world.shares():
            world.finish("second")

    assert frozenset({"first"}) in together
    assert frozenset({"first", "second"}) not in together
