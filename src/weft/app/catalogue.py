"""What there is to choose from, as rows of text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from weft.core.cluster import NAMED_CLUSTERS, parse_cluster
from weft.core.parameters import parameters
from weft.core.registry import find, names
from weft.core.spec import write_value
from weft.perf.restart import OTHER_S, RESTART_S
from weft.traces.draft import Workload
from weft.traces.read import trace_part

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]


def catalogue(kind: str) -> Rows:
    """Headings and rows of everything of `kind`."""
    return _KINDS[kind]()


def _policies() -> Rows:
    rows = []
    for name in names("policy"):
        part = find("policy", name)
        about = part().about
        settable = ", ".join(
            f"{k}={write_value(default) or 'none'}" for k, (_, default) in parameters(part).items()
        )
        rows.append((name, _first_line(part), about.paper, settable))
    return ("policy", "what it does", "paper", "parameters"), rows


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


def _models() -> Rows:
    rows = [(model, f"{cost:g} s") for model, cost in RESTART_S.items()]
    return ("model", "restart cost"), [*rows, ("any other", f"{OTHER_S:g} s")]


def _engines() -> Rows:
    return ("engine", "what it is"), [(n, _first_line(find("engine", n))) for n in names("engine")]


def _first_line(part: object) -> str:
    return (inspect.getdoc(part) or "").partition("\n")[0]


_KINDS: dict[str, Callable[[], Rows]] = {
    "policy": _policies,
    "trace": _traces,
    "predictor": _predictors,
    "cluster": _clusters,
    "model": _models,
    "engine": _engines,
    "perf": _perfs,
}
