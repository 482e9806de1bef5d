"""Everything there is to choose from, as rows of text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model.cluster import NAMED_CLUSTERS, parse_cluster
from weft.core.model.node_types import NODE_TYPES
from weft.core.plan.taxonomy import Taxonomy, tags_of, words_of
from weft.core.spec.parameters import parameters
from weft.core.spec.part_spec import write_value
from weft.core.spec.registry import ROLES, find, names
from weft.frozen import frozen
from weft.perf.restart import OTHER_S, RESTART_S
from weft.traces.draft import Workload
from weft.traces.read import trace_part

KINDS = ("policy", "wrapper", *ROLES)


@frozen
class TaxonomyEntry:
    """One that declares where it stands. `tags` are all words that it can be found by."""

    kind: str
    name: str
    summary: str
    paper: str
    settable: str
    place: Taxonomy
    starves: str
    tags: tuple[str, ...]

    def answer_to(self, question: str) -> str:
        """Its answer to a question of the taxonomy; empty where it leaves it to others."""
        answer = self.place.answers().get(question)
        return "" if answer is None else ", ".join(words_of(question, answer))


@cache
def read_entries(kind: str) -> tuple[TaxonomyEntry, ...]:
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


def stand_there(entries: Iterable[TaxonomyEntry], wanted: Collection[str]) -> list[TaxonomyEntry]:
    """Return the entries that have all the words."""
    return [entry for entry in entries if set(wanted) <= set(entry.tags)]


def _entry(kind: str, name: str) -> TaxonomyEntry:
    part = find(kind, name)
    if kind == "wrapper":
        place, paper, starves = part.adds, "", ""
        tags = tuple(tag for tag in tags_of(place, "") if tag != "no-starvation")
    else:
        about = part().about
        place, paper, starves = about.taxonomy, about.paper, about.starves
        tags = tags_of(place, starves)
    summary = (inspect.getdoc(part) or "").partition("\n")[0]
    return TaxonomyEntry(kind, name, summary, paper, _settable(part), place, starves, tags)


def _settable(part: Any) -> str:
    known = parameters(part).items()
    return ", ".join(f"{key}={_default(value)}" for key, (_, value) in known)


def _default(value: object) -> str:
    return write_value(value) or "none"


PLACED = ("policy", "wrapper", "part", *ROLES)
Rows = tuple[Sequence[str], Sequence[Sequence[str]]]


def catalogue(kind: str, where: Sequence[str] = ()) -> Rows:
    """Headings and rows of everything of `kind`; of policies and their parts, those `where`."""
    if kind in PLACED:
        return _placed(kind, where)
    if where:
        raise InvalidConfig(
            f"only {', '.join(PLACED)} can be filtered by tags, not a {kind}",
            hint="`weft list policy --where sharing,unknown-durations`",
        )
    return _KINDS[kind]()


def _placed(kind: str, where: Sequence[str]) -> Rows:
    """Parts that declare their place in the field: those that have all the words of `where`."""
    entries = [entry for role in _roles(kind) for entry in read_entries(role)]
    check_tags(where, known_tags())
    rows = []
    for entry in stand_there(entries, where):
        name = f"{entry.kind}={entry.name}" if kind == "part" else entry.name
        stands = ", ".join(entry.tags) if where else ""
        rows.append((name, entry.summary, entry.paper, entry.settable, stands))
    return (kind, "what it does", "paper", "parameters", "stands"), rows


def _roles(kind: str) -> tuple[str, ...]:
    return ROLES if kind == "part" else (kind,)


def _traces() -> Rows:
    rows = []
    for name in names("trace"):
        part = trace_part(name)
        form = "built in" if isinstance(part, Workload) else "file format"
        rows.append((name, form, part.about))
    return ("trace", "form", "what it is"), sorted(rows, key=lambda row: (row[1], row[0]))


def _predictors() -> Rows:
    rows = [(name, _first_line(find("predictor", name))) for name in names("predictor")]
    return ("predictor", "what it knows"), rows


def _perfs() -> Rows:
    return ("perf", "what it is"), [(n, _first_line(find("perf", n))) for n in names("perf")]


def _clusters() -> Rows:
    rows = [(n, text, f"{parse_cluster(n).gpus:,}") for n, text in NAMED_CLUSTERS.items()]
    return ("cluster", "nodes", "GPUs"), rows


def _node_types() -> Rows:
    rows = []
    for name, topology in NODE_TYPES.items():
        pairs = [topology.bandwidths[a][b] for a, b in combinations(range(topology.gpus), 2)]
        rows.append(
            (name, str(topology.gpus), topology.summary, f"{min(pairs):g} to {max(pairs):g} GB/s")
        )
    return ("node type", "GPUs", "links", "between two GPUs"), rows


def _models() -> Rows:
    rows = [(model, f"{cost:g} s") for model, cost in RESTART_S.items()]
    return ("model", "restart cost"), [*rows, ("any other", f"{OTHER_S:g} s")]


def _engines() -> Rows:
    return ("engine", "what it is"), [(n, _first_line(find("engine", n))) for n in names("engine")]


def _first_line(part: object) -> str:
    return (inspect.getdoc(part) or "").partition("\n")[0]


_KINDS: dict[str, Callable[[], Rows]] = {
    "trace": _traces,
    "predictor": _predictors,
    "cluster": _clusters,
    "node-type": _node_types,
    "model": _models,
    "engine": _engines,
    "perf": _perfs,
}
