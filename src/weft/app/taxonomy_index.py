"""Where policies, wrappers and parts stand in the field, as they declare it."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

from weft.core.errors import UnknownName
from weft.core.plan.taxonomy import Taxonomy, tags_of, words_of
from weft.core.spec.parameters import parameters
from weft.core.spec.part_spec import write_value
from weft.core.spec.registry import ROLES, find, names
from weft.frozen import frozen

KINDS = ("policy", "wrapper", *ROLES)


@frozen
class Entry:
    """One that declares where it stands. `tags` are all words that it can be found by."""

    kind: str
    name: str
    summary: str
    paper: str
    settable: str
    place: Taxonomy
    starves: str
    tags: tuple[str, ...]

    def words(self, question: str) -> str:
        """Its answer to a question of the taxonomy; empty where it leaves it to others."""
        answer = self.place.answers().get(question)
        return "" if answer is None else ", ".join(words_of(question, answer))


@cache
def read_entries(kind: str) -> tuple[Entry, ...]:
    """Everything of a kind, in the order of names."""
    return tuple(_entry(kind, name) for name in names(kind))


@cache
def known_tags() -> tuple[str, ...]:
    """Every tag that a policy can be found by."""
    tags = {tag for kind in KINDS for entry in read_entries(kind) for tag in entry.tags}
    return tuple(sorted(tags))


def check_tags(wanted: Sequence[str], known: Iterable[str]) -> None:
    """Refuse a tag that no policy has."""
    every = tuple(known)
    for word in wanted:
        if word not in every:
            name = UnknownName.among("word", word, every)
            raise UnknownName(name.what, hint=f"one of {', '.join(every)}")


def stand_there(entries: Iterable[Entry], wanted: Collection[str]) -> list[Entry]:
    """Those that have all the words."""
    return [entry for entry in entries if set(wanted) <= set(entry.tags)]


def _entry(kind: str, name: str) -> Entry:
    part = find(kind, name)
    if kind == "wrapper":
        place, paper, starves = part.adds, "", ""
        tags = tuple(tag for tag in tags_of(place, "") if tag != "no-starvation")
    else:
        about = part().about
        place, paper, starves = about.taxonomy, about.paper, about.starves
        tags = tags_of(place, starves)
    summary = (inspect.getdoc(part) or "").partition("\n")[0]
    return Entry(kind, name, summary, paper, _settable(part), place, starves, tags)


def _settable(part: Any) -> str:
    known = parameters(part).items()
    return ", ".join(f"{key}={_default(value)}" for key, (_, value) in known)


def _default(value: object) -> str:
    return write_value(value) or "none"
