"""The format number of logs grows with what they can hold."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from weft.core.codec import log_schema
from weft.core.codec.log_schema import FORMAT, MAY_GO, PARTS, WRITTEN_BY, paths_of, rewrite, schema

FORMATS = Path(log_schema.__file__).parent / "formats"
# What a release wrote stays as it is: versions that people run read logs by it. Only the last may
# grow, until it is released.
DIGESTS = {4: "840c1099bf8fc53b", 5: "b0aa25eb2a0f3bb0"}
WRAPPERS = [{"name": "skip_failing"}, {"name": "quota", "params": {}}, {"name": "no_preempt"}]


def test_a_changed_schema_has_a_new_number() -> None:
    """To add one: raise FORMAT, note in WRITTEN_BY which version wrote the last, and write
    `formats/N.txt` from `schema()`; say in MAY_GO what of it a log can lose to go back."""
    assert schema() == FORMATS.joinpath(f"{FORMAT}.txt").read_text().splitlines()


@pytest.mark.parametrize("number", DIGESTS)
def test_what_a_format_can_hold_never_changes(number: int) -> None:
    held = FORMATS.joinpath(f"{number}.txt").read_bytes()

    assert hashlib.sha256(held).hexdigest()[:16] == DIGESTS[number]


def test_every_format_that_is_written_is_described() -> None:
    written = {*WRITTEN_BY, FORMAT}

    assert written == DIGESTS.keys() == {int(path.stem) for path in FORMATS.iterdir()}


@pytest.mark.parametrize("number", WRITTEN_BY)
def test_what_is_left_out_of_a_log_means_the_same_in_all_formats(number: int) -> None:
    was, now = paths_of(number), paths_of(number + 1)

    changed = {
        path
        for path in was.keys() & now.keys()
        if not was[path].startswith("one of") and was[path] != now[path]
    }
    assert was.keys() <= now.keys(), "else `read_event` drops it: RETIRED"
    assert not changed, "a log of before would be read as something else"


def test_every_policy_in_a_log_has_its_names_of_then() -> None:
    parts = {path for path, rest in paths_of(FORMAT).items() if rest.startswith("object")}
    inside = {path.rpartition(".")[0] for path in paths_of(FORMAT)}
    line = {"at": 1.0, "event": "PolicyChanged", "policy": {"name": "weft", "wrappers": WRAPPERS}}

    older, lacks = rewrite(line, 4)

    assert {*PARTS} == {path for path in parts - inside if "report" not in path and "." in path}
    assert [each["name"] for each in older["policy"]["wrappers"]] == ["spare", "quota", "firm"]
    assert lacks == ["names"] and rewrite(line, FORMAT) == (line, [])


def test_what_a_log_can_lose_is_new_in_some_format() -> None:
    first = paths_of(min(WRITTEN_BY))

    assert {path for path in MAY_GO if path in first} == {"Decided.blockers{}"}  # has a new word
    assert MAY_GO.keys() - {"names"} <= paths_of(FORMAT).keys()
