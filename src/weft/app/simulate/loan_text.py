"""Loans of machines from what a user types: `8x8:v100,low=0.3,high=0.9`, or with a trace."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import NodeId
from weft.core.paths import expand
from weft.core.spec.parameters import settings
from weft.sim.loans import Diurnal, Loans, Needed, Recorded

EXAMPLE = "8x8:v100,low=0.3,high=0.95, or 8x8:v100,trace=needed.csv"
OWN = ("headroom", "speed")


def read_loans(text: str) -> Loans:
    """NODESxGPUS:KIND, then how many their owner needs: a rhythm by KEY=VALUE, or `trace=FILE`."""
    if not text:
        return Loans()
    machines, *pairs = text.split(",")
    typed = dict(_pair(text, pair) for pair in pairs)
    nodes = tuple(
        replace(node, id=NodeId(f"loan-{i}"), loaned=True)
        for i, node in enumerate(parse_cluster(machines).nodes)
    )
    own = settings("--loan", Loans, {key: typed.pop(key) for key in OWN if key in typed})
    return Loans(nodes, _needed(typed), **own)


def _pair(text: str, pair: str) -> tuple[str, str]:
    key, equals, value = pair.strip().partition("=")
    if not equals:
        raise InvalidConfig(
            f"--loan {text!r}: {pair!r} is not KEY=VALUE", hint=f"for example {EXAMPLE}"
        )
    return key, value


def _needed(typed: dict[str, str]) -> Needed:
    trace = typed.pop("trace", None)
    if trace is None:
        return Diurnal(**settings("--loan", Diurnal, typed))
    if typed:
        raise InvalidConfig(
            f"--loan: {', '.join(typed)} has no effect beside a trace",
            hint=f"beside trace there may be {' and '.join(OWN)}",
        )
    return read_needed(expand(trace))


def read_needed(path: Path) -> Recorded:
    """A CSV file of `time_s,needed`: machines that their owner needs from a time on."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InvalidConfig(f"cannot read the loan trace {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidConfig(f"the loan trace {path} is not CSV in UTF-8: {error}") from error
    points = []
    for number, row in enumerate(rows, 2):
        try:
            points.append((float(row["time_s"]), int(row["needed"])))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidConfig(
                f"{path}, line {number}: {dict(row)} is not a time and a number of machines",
                hint="the file begins with the line time_s,needed",
            ) from error
    return Recorded(tuple(points))
