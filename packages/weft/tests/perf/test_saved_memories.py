"""What was learnt is saved by the annotations of a memory; the last version's is still read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weft.core.knowledge.learning import Remembering
from weft.perf.learnt_costs import LearntCosts
from weft.perf.plans.learnt import LearntPlans
from weft.perf.sharing.programs import LearntPrograms

# As the last version saved them.
PLANS = {"rates": {"p/a100/dp": {"8": 2.5}}, "failed": {"p/a100/tp2": [4]}, "batches": {"p": 64}}
COSTS = {
    "firsts": {"a100/m": {"n0": [1.5, 2.0]}},
    "again": {},
    "ready": {"a100/m": [3.0]},
    "pauses": {"a100": [[0.5, 0.02]]},
    "able": {"m": 0.5},
    "attempts": {"j": 2},
}
PROGRAMS = {
    "running": {"j": [1.5, None, True, 0.75, 0.0], "k": [2.0, 7.0, False, None, 1.0]},
    "peaks": {"a100 1 p": 1.5},
    "alone": {"a100 1 q": False},
    "alone_jobs": ["i", "k"],
    "faulty": ["f"],
    "added": {"a100 1 p | q": 0.25},
}
CASES = [(LearntPlans, PLANS), (LearntCosts, COSTS), (LearntPrograms, PROGRAMS)]


@pytest.mark.parametrize(("part", "saved"), CASES)
def test_a_memory_of_the_last_version_is_taken_up_and_saved_whole(
    part: type[Remembering[Any]], saved: dict[str, Any]
) -> None:
    old, again = part(), part()  # type: ignore[call-arg]

    old.load(saved)
    again.load(json.loads(json.dumps(old.save())))

    assert again.memory == old.memory
    kept = old.save()
    assert {name for name, value in saved.items() if value} == {*kept}
    assert {name: kept[name] for name in kept if name != "running"} == {
        name: value for name, value in saved.items() if value and name != "running"
    }


def test_the_jobs_of_programs_are_read_from_their_rows() -> None:
    programs = LearntPrograms()

    programs.load(PROGRAMS)

    assert {job: seen.peak_gb for job, seen in programs.memory.running.items()} == {
        "j": 1.5,
        "k": 2.0,
    }
    assert programs.memory.alone_jobs == {"i", "k"}
